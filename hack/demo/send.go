// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/substorm/substorm/hack/sampledata"
	"github.com/substorm/substorm/internal/wire"
)

// linesPerSecond is how fast the magnetometer's lines are sent: they take a few seconds.
const linesPerSecond = 100

// sent is what the archive must hold in the end.
type sent struct {
	frames map[wire.Digest]string // file by its SHA-256
	// datagrams that the archive held before, and that were sent.
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
	if s.before, err = d.archivedDatagrams(ctx); err != nil {
		return sent{}, err
	}
	lines := filepath.Join(d.dir, "magnetometer.txt")
	if err := os.WriteFile(lines, []byte(strings.Join(data.Lines, "\n")+"\n"), 0o644); err != nil {
		return sent{}, err
	}
	address, err := d.addressOf(ctx, camera)
	if err != nil {
		return sent{}, err
	}
	magnetometer, err := d.addressOf(ctx, "magnetometer")
	if err != nil {
		return sent{}, err
	}
	if err := d.show(ctx, append([]string{d.substorm, "send", "--to", address}, data.Frames...)...); err != nil {
		return sent{}, err
	}
	return s, d.show(ctx, d.substorm, "send", "--udp", "--lines", "--rate", strconv.Itoa(linesPerSecond), "--to", magnetometer, lines)
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
		err = fmt.Errorf("instrument %s is Ready and its status names no address", instrument)
	}
	return address, err
}
