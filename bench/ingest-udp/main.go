// SPDX-License-Identifier: Apache-2.0

// Command ingest-udp measures how many datagrams a second are kept without loss, and the processor time of each, beside rsyslog and Telegraf.
package main

import (
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/substorm/substorm/bench/internal/datagram"
	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/bench/internal/receiver"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/internal/testenv"
)

const (
	// In the first round a ramp finds about where a candidate begins to lose: from
	// slowest to fastest, in steps of so long. Later rounds know that.
	slowest, fastest, factor = 2_000, 700_000, 1.6
	step                     = 150 * time.Millisecond
	// The result is the greatest rate that a candidate holds for so long while it keeps
	// all datagrams: socket buffers and queues hold a fraction of that. The rates that
	// are tried begin above the ramp's, and each is this much lower.
	holdFor = time.Second
	above   = 1.2
	lower   = 1.15
	// The rate at which the processor's time is measured, and for how long: well below what any candidate loses at.
	steadyRate = 40_000
	steadyFor  = time.Second
	// settle is longer than candidates keep datagrams back: the peers write each second.
	settle = 1500 * time.Millisecond
	// patience is how long a candidate may keep nothing new before what it lacks is lost.
	patience = 2500 * time.Millisecond
)

var rounds = report.Rounds(5)

var (
	sizes   = []int{140, 236, 1400}
	sources = []int{1, 256, 4096}
	// generators has the generator's core, receivers the core of everything else.
	generators, receivers = []int{0}, []int{1}
)

// Names of the candidates and what is measured of them.
const (
	gatewayName  = "gateway and NATS"
	rsyslogName  = "rsyslog"
	telegrafName = "Telegraf"
	selfName     = "gateway itself"
)

func main() { lab.Run(run, receiver.Main, datagram.Main) }

func run(l *lab.Lab) error {
	r := report.New("ingest-udp", rounds)
	minio := testenv.MinIO(l, testenv.MinIOOptions{})
	minio.Bucket(l, receiver.BucketName)
	names := []string{gatewayName, rsyslogName, telegrafName}
	starts := []start{startGateway(minio), startRsyslog, startTelegraf}
	for round := range r.Each() {
		for _, size := range sizes {
			for _, n := range sources {
				for i := range starts {
					k := (i + round) % len(starts)
					if err := measure(l, r, names[k], starts[k], size, n); err != nil {
						return fmt.Errorf("%s, %d B from %d sources: %w", names[k], size, n, err)
					}
				}
				if err := alone(l, r, size, n); err != nil {
					return err
				}
			}
		}
	}
	conclude(r)
	return r.Finish()
}

// measure starts a candidate, takes its processor time at a rate that it bears,
// and then the greatest rate at which it keeps every datagram.
func measure(l *lab.Lab, r *report.Report, name string, begin start, size, n int) error {
	c, err := begin(l)
	if err != nil {
		return err
	}
	defer c.stop()
	order := datagram.Order{Port: c.port, Size: size, Sources: n, Rates: []float64{steadyRate}, Step: steadyFor}
	before, err := process.Times(c.pids)
	if err != nil {
		return err
	}
	steady, err := datagram.Send(l, order, generators)
	if err != nil {
		return err
	}
	sent, _ := steady.Totals()
	time.Sleep(settle) // counting what is kept would be counted too: a server does it for us
	after, err := process.Times(c.pids)
	if err != nil {
		return err
	}
	if lost, err := c.lost(steady); err != nil {
		return err
	} else if lost > 0 {
		r.Note("%s, %d B from %d sources: it lost %d of %d datagrams at %d a second.", name, size, n, lost, sent, steadyRate)
	}
	var all time.Duration
	for i := range after {
		all += after[i] - before[i]
	}
	r.Add(cost(size, n), name, "", micros(all, sent))
	if name == gatewayName {
		r.Add(cost(size, n), selfName, "", micros(after[0]-before[0], sent))
	}
	about := r.Values(rate(size, n), name)
	best, err := c.greatest(l, order, about)
	if err != nil {
		return err
	}
	r.Add(rate(size, n), name, "", best/1000)
	fmt.Fprintf(os.Stderr, "%s, %d B from %d sources: %.0f a second, %.2f µs each\n", name, size, n, best, micros(all, sent))
	return nil
}

// greatest returns the greatest rate that the candidate holds without a loss, in
// its socket or behind it. Before is what it held in earlier rounds, in thousands.
func (c *candidate) greatest(l *lab.Lab, order datagram.Order, before []float64) (float64, error) {
	about := 1000 * slices.Max(append([]float64{0}, before...))
	if about == 0 {
		order.Rates, order.Step, order.UntilLoss = ramp(), step, true
		out, err := datagram.Send(l, order, generators)
		if err != nil {
			return 0, err
		}
		if _, err := c.lost(out); err != nil {
			return 0, err
		}
		about = out.Best()
	}
	order.Step, order.UntilLoss = holdFor, false
	for tried := max(about, slowest) * above; tried > slowest/lower; tried /= lower {
		order.Rates = []float64{tried}
		out, err := datagram.Send(l, order, generators)
		if err != nil {
			return 0, err
		}
		lost, err := c.lost(out)
		if err != nil {
			return 0, err
		}
		if _, dropped := out.Totals(); dropped+lost == 0 {
			return out.Steps[0].Rate, nil
		}
	}
	return 0, fmt.Errorf("it loses datagrams at %d a second", slowest)
}

// lost waits until all that the socket took is kept, and returns what is not.
func (c *candidate) lost(o datagram.Outcome) (int64, error) {
	sent, dropped := o.Totals()
	owed := sent - dropped
	for last := time.Now(); owed > 0 && time.Since(last) < patience; time.Sleep(50 * time.Millisecond) {
		n, err := c.kept()
		if err != nil {
			return owed, err
		}
		if owed -= n; n > 0 {
			last = time.Now()
		}
	}
	return owed, nil
}

// alone shows what the generator can send to a socket that is not read.
func alone(l *lab.Lab, r *report.Report, size, n int) error {
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer conn.Close()
	out, err := datagram.Send(l, datagram.Order{
		Port: conn.LocalAddr().(*net.UDPAddr).Port, Size: size, Sources: n, Rates: []float64{0}, Step: time.Second,
	}, generators)
	if err != nil {
		return err
	}
	r.Add(rate(size, n), "generator", "", out.Steps[0].Rate/1000)
	return nil
}

func ramp() []float64 {
	var rates []float64
	for f := float64(slowest); f <= fastest; f *= factor {
		rates = append(rates, f)
	}
	return rates
}

func micros(t time.Duration, n int64) float64 { return float64(t.Nanoseconds()) / 1000 / float64(n) }

func rate(size, n int) string { return fmt.Sprintf("%d B from %d, 1,000/s", size, n) }
func cost(size, n int) string { return fmt.Sprintf("%d B from %d, µs each", size, n) }

func conclude(r *report.Report) {
	r.Note("Rates: the greatest that was held for %v with every datagram kept. The generator has one core, all that the job takes the other.", holdFor)
	r.Note("Processor time: at %d a second, until all is kept. The gateway's datagrams are in a JetStream that syncs; the peers write lines to a file.", steadyRate)
	for _, peer := range []struct {
		name       string
		rate, cost float64
	}{{rsyslogName, 1.3, 0.6}, {telegrafName, 3, 0.3}} {
		var rates, costs, own []report.Pair
		for _, size := range sizes {
			for _, n := range sources {
				rates = append(rates, report.Pair{Case: rate(size, n), Candidate: gatewayName, OfCase: rate(size, n), OfCandidate: peer.name})
				costs = append(costs, report.Pair{Case: cost(size, n), Candidate: gatewayName, OfCase: cost(size, n), OfCandidate: peer.name})
				own = append(own, report.Pair{Case: cost(size, n), Candidate: selfName, OfCase: cost(size, n), OfCandidate: peer.name})
			}
		}
		r.Compare("rate-gateway/"+peer.name, rates, ">=", peer.rate)
		r.Compare("cpu-gateway-and-NATS/"+peer.name, costs, "<=", peer.cost)
		r.Compare("cpu-gateway-itself/"+peer.name, own, "", 0)
	}
}
