// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/substorm/substorm/hack/sampledata"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
)

// linesPerSecond is how fast the magnetometer's lines are sent: they take a few seconds.
const linesPerSecond = 100

// magnetometer is the Instrument that sends lines, see docs/samples.
const magnetometer = "magnetometer"

// sent is what the archive must hold in the end.
type sent struct {
	frames map[wire.Digest]string // file by its SHA-256
	// datagrams that were received before, and that were sent.
	before, datagrams uint64
	// samples are the seconds that the lines tell of, all between from and to.
	samples  int
	from, to time.Time
}

// send sends the frames over TCP and the lines over UDP, each to the address that its Instrument's status names.
func (d *demo) send(ctx context.Context) (sent, error) {
	data, err := sampledata.Find(d.root, filepath.Join(d.dir, "data"))
	if err != nil {
		return sent{}, err
	}
	d.p.Line("data: %s", data.What)
	for i, began := 0, time.Now().Add(-time.Duration(len(data.Lines))*time.Second); i < len(data.Lines); i++ {
		data.Lines[i] = sampledata.Redate(data.Lines[i], began.Add(time.Duration(i)*time.Second))
	}
	s := sent{frames: map[wire.Digest]string{}, datagrams: uint64(len(data.Lines))}
	if err := s.span(data.Lines); err != nil {
		return sent{}, err
	}
	for _, file := range data.Frames {
		body, err := os.ReadFile(file)
		if err != nil {
			return sent{}, err
		}
		s.frames[sha256.Sum256(body)] = file
	}
	lines := filepath.Join(d.dir, "magnetometer.txt")
	if err := os.WriteFile(lines, []byte(strings.Join(data.Lines, "\n")+"\n"), 0o644); err != nil {
		return sent{}, err
	}
	address, err := d.addressOf(ctx, camera)
	if err != nil {
		return sent{}, err
	}
	telemetry, err := d.addressOf(ctx, magnetometer)
	if err != nil {
		return sent{}, err
	}
	if err := d.show(ctx, append([]string{d.substorm, "send", "--to", address}, data.Frames...)...); err != nil {
		return sent{}, err
	}
	if s.before, err = d.forwards(ctx, telemetry, data.Lines[0]); err != nil {
		return sent{}, err
	}
	return s, d.show(ctx, d.substorm, "send", "--udp", "--lines", "--rate", strconv.Itoa(linesPerSecond), "--to", telemetry, lines)
}

// forwards sends a line again and again until a gateway has received it, and returns how many it has received then. An Instrument is
// Ready once gateways listen; a node may not yet forward the port, and does not report which datagrams it drops.
func (d *demo) forwards(ctx context.Context, address, line string) (received uint64, err error) {
	step := d.p.Step("a datagram is received")
	defer func() { step.Done(err) }()
	file := filepath.Join(d.dir, "first-line.txt")
	if err := os.WriteFile(file, []byte(line+"\n"), 0o644); err != nil {
		return 0, err
	}
	before, err := d.receivedDatagrams(ctx)
	if err != nil {
		return 0, err
	}
	err = await(ctx, func() error {
		_, failed := d.output(ctx, d.substorm, "send", "--udp", "--lines", "--to", address, file)
		var unread error
		for range 5 { // gateways report every two seconds
			if received, unread = d.receivedDatagrams(ctx); unread == nil && received > before {
				return nil
			}
			if !retry.Sleep(ctx, time.Second) {
				return ctx.Err()
			}
		}
		return errors.Join(fmt.Errorf("no datagram to %s was received", address), failed, unread)
	})
	return received, err
}

// receivedDatagrams is what the ledger has of the magnetometer.
func (d *demo) receivedDatagrams(ctx context.Context) (n uint64, err error) {
	ledgers, err := d.ledger(ctx, "--instrument", magnetometer)
	for _, l := range ledgers {
		n += l.Received.Datagrams
	}
	return n, err
}

// span notes which seconds lines of IAGA-2002 tell of.
func (s *sent) span(lines []string) error {
	const layout = "2006-01-02 15:04:05.000"
	seconds := map[time.Time]bool{}
	for _, line := range lines {
		at, err := time.Parse(layout, line[:min(len(layout), len(line))])
		if err != nil {
			return fmt.Errorf("line %q: %w", line, err)
		}
		if len(seconds) == 0 || at.Before(s.from) {
			s.from = at
		}
		if end := at.Add(time.Second); end.After(s.to) {
			s.to = end
		}
		seconds[at] = true
	}
	s.samples = len(seconds)
	return nil
}

func (d *demo) addressOf(ctx context.Context, instrument string) (string, error) {
	address, err := d.output(ctx, d.kubectl, "-n", namespace, "get", "instrument", instrument, "-o", "jsonpath={.status.listeners[0].addresses[0].address}")
	if err == nil && address == "" {
		err = fmt.Errorf("instrument %s is Ready, but its status has no address", instrument)
	}
	return address, err
}
