// SPDX-License-Identifier: Apache-2.0

// Package datagram sends UDP packets from a process of its own, from many
// addresses of the loopback network, faster and faster until the receiver's
// socket drops some.
package datagram

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/substorm/substorm/bench/internal/process"
)

// Order is what to send.
type Order struct {
	// Port on 127.0.0.1.
	Port int `json:"port"`
	// Size of a payload in bytes, of ASCII text: peers write lines.
	Size int `json:"size"`
	// Sources is from how many addresses, 127.1.0.1 and on.
	Sources int `json:"sources"`
	// Rates in datagrams a second, one after another, each for Step. 0 is as fast
	// as the generator can.
	Rates []float64     `json:"rates"`
	Step  time.Duration `json:"step"`
	// UntilLoss ends with the first step in which the receiver's socket dropped.
	UntilLoss bool `json:"untilLoss"`
}

// Outcome is what was sent.
type Outcome struct {
	Steps []Step `json:"steps"`
	Error string `json:"error,omitempty"`
}

// Step is what was sent at one rate.
type Step struct {
	// Rate that was reached, in datagrams a second.
	Rate float64 `json:"rate"`
	Sent int64   `json:"sent"`
	// Dropped by the receiver's socket, as the kernel counts.
	Dropped int64 `json:"dropped"`
}

// Totals sums up all steps.
func (o Outcome) Totals() (sent, dropped int64) {
	for _, s := range o.Steps {
		sent, dropped = sent+s.Sent, dropped+s.Dropped
	}
	return sent, dropped
}

// Best is the greatest rate of a step before the first that lost something.
func (o Outcome) Best() float64 {
	best := 0.0
	for _, s := range o.Steps {
		if s.Dropped > 0 {
			break
		}
		best = max(best, s.Rate)
	}
	return best
}

const environment = "SUBSTORM_BENCH_DATAGRAM"

// Send carries an order out in a process on these cores; nil for all.
func Send(l testing.TB, o Order, cpus []int) (Outcome, error) {
	program, err := os.Executable()
	if err != nil {
		l.Fatal(err)
	}
	order, err := json.Marshal(o)
	if err != nil {
		l.Fatal(err)
	}
	cmd := exec.Command(program)
	var said strings.Builder
	cmd.Env = append(os.Environ(), environment+"="+string(order))
	cmd.Stdout, cmd.Stderr = &said, os.Stderr
	if err := process.StartOn(cmd, cpus); err != nil {
		return Outcome{}, err
	}
	if err := cmd.Wait(); err != nil {
		return Outcome{}, fmt.Errorf("the generator: %w", err)
	}
	var out Outcome
	if err := json.Unmarshal([]byte(said.String()), &out); err != nil {
		return Outcome{}, fmt.Errorf("the generator said %q: %w", said.String(), err)
	}
	if out.Error != "" {
		return out, errors.New(out.Error)
	}
	return out, nil
}

// Main is called early by a benchmark's main: in a generator it does not return.
func Main() {
	text := os.Getenv(environment)
	if text == "" {
		return
	}
	var o Order
	var out Outcome
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		out, err = send(o)
	}
	if err != nil {
		out.Error = err.Error()
	}
	if json.NewEncoder(os.Stdout).Encode(out) != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// batch is how many datagrams one system call sends at most.
const batch = 64

func send(o Order) (Outcome, error) {
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return Outcome{}, err
	}
	defer conn.Close()
	g := &generator{conn: ipv4.NewPacketConn(conn), order: o, messages: messages(o)}
	var out Outcome
	for _, rate := range o.Rates {
		before, err := Drops(o.Port)
		if err != nil {
			return out, err
		}
		s, err := g.step(rate)
		if err != nil {
			return out, err
		}
		after, err := Drops(o.Port)
		if err != nil {
			return out, err
		}
		s.Dropped = after - before
		out.Steps = append(out.Steps, s)
		if o.UntilLoss && s.Dropped > 0 {
			break
		}
	}
	return out, nil
}

// generator sends the same messages again and again.
type generator struct {
	conn     *ipv4.PacketConn
	order    Order
	messages []ipv4.Message
	next     int
}

// messages are one of each source, at least a batch of them.
func messages(o Order) []ipv4.Message {
	to := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: o.Port}
	payload := []byte(strings.Repeat("0123456789abcdef", o.Size/16+1)[:o.Size])
	all := make([]ipv4.Message, max(o.Sources, batch))
	for i := range all {
		n := i%o.Sources + 1
		from := ipv4.ControlMessage{Src: net.IPv4(127, 1, byte(n>>8), byte(n)).To4()}
		all[i] = ipv4.Message{Buffers: [][]byte{payload}, OOB: from.Marshal(), Addr: to}
	}
	return all
}

// step sends at a rate: whatever is due, a batch at a time.
func (g *generator) step(rate float64) (Step, error) {
	var s Step
	begin := time.Now()
	for {
		passed := time.Since(begin)
		if passed >= g.order.Step {
			s.Rate = float64(s.Sent) / passed.Seconds()
			return s, nil
		}
		n := batch
		if rate > 0 {
			if n = int(rate*passed.Seconds()) - int(s.Sent); n <= 0 {
				time.Sleep(200 * time.Microsecond)
				continue
			}
		}
		if g.next == len(g.messages) {
			g.next = 0
		}
		k, err := g.conn.WriteBatch(g.messages[g.next:min(g.next+min(n, batch), len(g.messages))], 0)
		if err != nil {
			return s, fmt.Errorf("send: %w", err)
		}
		g.next, s.Sent = g.next+k, s.Sent+int64(k)
	}
}
