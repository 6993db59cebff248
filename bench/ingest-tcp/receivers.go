// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/load"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/bench/internal/receiver"
	"github.com/substorm/substorm/internal/testenv"
)

// cell names a case of the grid.
func cell(size, senders, cores int) string {
	return fmt.Sprintf("%d KiB, %d senders, %d cores", size>>10, senders, cores)
}

// start starts a receiver for each number of cores.
func (b *bench) start(kind receiver.Kind, answer load.Answer) candidate {
	c := candidate{name: kind, answer: answer, address: map[int]string{}}
	var all []*receiver.Process
	for _, n := range cores {
		o := receiver.Options{Kind: kind, Port: testenv.FreePort(b.lab), Dir: b.lab.TempDir(), CPUs: receiverCPUs(n)}
		if dir := os.Getenv(profiles); dir != "" {
			o.Profile = filepath.Join(dir, fmt.Sprintf("%s-%d.pprof", kind, n))
		}
		p := receiver.Start(b.lab, o)
		c.address[n] = p.Address
		all = append(all, p)
	}
	c.stop = func() {
		for _, p := range all {
			p.Stop()
		}
	}
	return c
}

// profiles names a folder that gets each receiver's processor profile.
const profiles = "SUBSTORM_BENCH_PROFILES"

// startNcat starts ncat where it is installed. Its file is emptied after each
// measurement, so that the disk holds it.
func startNcat(l *lab.Lab) (candidate, error) {
	program, err := exec.LookPath("ncat")
	if err != nil {
		return candidate{}, err
	}
	file, err := os.OpenFile(filepath.Join(l.TempDir(), "received"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return candidate{}, err
	}
	c := candidate{name: ncat, answer: load.Close, address: map[int]string{}, tidy: func() { _ = file.Truncate(0) }}
	var stops []func()
	c.stop = func() {
		for _, stop := range stops {
			stop()
		}
	}
	for _, n := range cores {
		port := testenv.FreePort(l)
		cmd := exec.Command(program, "--listen", "--keep-open", "--recv-only", "127.0.0.1", strconv.Itoa(port))
		cmd.Stdout = file
		if err := process.StartOn(cmd, receiverCPUs(n)); err != nil {
			return candidate{}, err
		}
		stop := func() {
			if cmd.ProcessState == nil {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
		}
		l.Cleanup(stop)
		stops = append(stops, stop)
		c.address[n] = testenv.Loopback(port)
		if err := await(c.address[n]); err != nil {
			return candidate{}, err
		}
	}
	return c, nil
}

// await returns once something listens.
func await(address string) error {
	var err error
	for range 200 {
		var conn net.Conn
		if conn, err = net.Dial("tcp", address); err == nil {
			return conn.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// oldOnce measures the old algorithm once, one sender: it takes minutes otherwise.
func (b *bench) oldOnce() error {
	for _, size := range sizes {
		n := cores[len(cores)-1]
		o := load.Order{Address: b.old.address[n], Answer: b.old.answer, Size: size, Senders: 1, Duration: window}
		if err := b.measure(n, b.old, cell(size, 1, n), o); err != nil {
			return err
		}
	}
	b.report.Note("%s: one round, one sender; it has no goal.", receiver.Old)
	return nil
}
