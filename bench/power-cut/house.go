// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/load"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/bench/internal/standalone"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// diskSize in bytes: ten cuts with their load fit.
const diskSize = 512 << 20

// The instruments.
const small, large = "small", "large"

// house is a Site all of whose data lies on one disk.
type house struct {
	lab       *lab.Lab
	report    *report.Report
	generator *load.Generator
	site      *standalone.Site

	// image is the disk's file, disk where it is mounted. The data folder's parent is root, a link to the folder of the disk in use.
	image, disk, root string
	// upper is the folder of the disk whose syncs do nothing, and view where it is mounted; empty: all syncs.
	upper, view string
	receipts    map[wire.Digest]bool
}

// newHouse starts a Site on a new disk.
func newHouse(l *lab.Lab, r *report.Report, generator *load.Generator, syncs bool) (*house, error) {
	h := &house{lab: l, report: r, generator: generator, root: filepath.Join(l.TempDir(), "disk"), receipts: map[wire.Digest]bool{}}
	h.image, h.disk = testenv.DiskOf(l, diskSize)
	inUse := h.disk
	if !syncs {
		h.view, h.upper = testenv.Unsynced(l, h.disk)
		inUse = h.view
	}
	if err := os.Symlink(inUse, h.root); err != nil {
		return nil, err
	}
	h.site = standalone.New(l, standalone.Options{
		DataDir: filepath.Join(h.root, "data"), PartInterval: "1s", StreamSize: "128Mi",
		Instruments: []standalone.Instrument{{Name: small, Framing: wire.FramingLengthPrefixed}, {Name: large, Framing: wire.FramingUntilClose}},
	})
	if err := h.site.Start(); err != nil {
		return nil, err
	}
	return h, h.settle()
}

// settle has what the start made outlast the cut of a disk whose syncs do nothing: the control is about what is received.
func (h *house) settle() error {
	if h.upper == "" {
		return nil
	}
	f, err := os.Open(h.disk)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// live goes through power cuts.
func (h *house) live(cuts int) error {
	for range cuts {
		before := len(h.receipts)
		if err := h.sendThroughCut(); err != nil {
			return err
		}
		n := len(h.receipts) - before
		started, err := h.site.StartAndSend()
		if err != nil {
			return err
		}
		h.receipts[started.Digest] = true
		missing, err := h.missing()
		if err != nil {
			return err
		}
		h.report.Add(synced, receipts, noUnit, float64(n))
		h.report.Add(synced, lost, noUnit, float64(missing))
		h.report.Add(synced, toReceipt, seconds, started.Receipt.Seconds())
		h.report.Add(synced, toServed, seconds, started.Served.Seconds())
		h.lab.Logf("%d receipts, %d lost of %d; first receipt %.2f s after the start, served after %.2f s",
			n, missing, len(h.receipts)+missing, started.Receipt.Seconds(), started.Served.Seconds())
	}
	return nil
}

// sendThroughCut sends, and cuts the power while objects are on their way.
func (h *house) sendThroughCut() error {
	type result struct {
		out load.Outcome
		err error
	}
	sent := make(chan result, 1)
	go func() {
		out, err := h.generator.Send(load.Order{All: []load.Order{
			{Address: h.site.Address(small), Answer: load.Receipt, Size: smallSize, Senders: smallSenders, InFlight: smallInFlight, Duration: longestLoad, Digests: true},
			{Address: h.site.Address(large), Answer: load.Receipt, Size: largeSize, Senders: largeSenders, Duration: longestLoad, Digests: true},
		}})
		sent <- result{out, err}
	}()
	select {
	case r := <-sent:
		return fmt.Errorf("the load ended before the power cut: %w", r.err)
	case <-time.After(moment()):
	}
	h.site.Kill()
	r := <-sent // with an error: its receiver is gone
	if len(r.out.Digests) == 0 {
		return fmt.Errorf("no object had its receipt before the power cut: %w", r.err)
	}
	for _, d := range r.out.Digests {
		h.receipts[d] = true
	}
	return h.cutPower()
}

// cutPower puts a disk in the place of the one in use, on which is what that one had when the power went.
func (h *house) cutPower() error {
	const never, size = "never-synced", 100_000
	if err := os.WriteFile(filepath.Join(h.disk, never), make([]byte, size), 0o600); err != nil {
		return err
	}
	image, after := testenv.CutPowerOf(h.lab, h.image)
	h.lab.Cleanup(h.site.Kill) // before it is unmounted
	if info, err := os.Stat(filepath.Join(after, never)); err == nil && info.Size() == size {
		return errors.New("what nobody synced outlasts the power cut: this measures nothing")
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if h.view != "" {
		testenv.Eject(h.lab, h.view)
	}
	testenv.Eject(h.lab, h.disk)
	if err := os.Remove(h.image); err != nil {
		return err
	}
	h.image, h.disk = image, after
	inUse := after
	if h.upper != "" {
		inUse = filepath.Join(after, filepath.Base(h.upper))
	}
	return errors.Join(os.Remove(h.root), os.Symlink(inUse, h.root))
}

const (
	// standstill is how long nothing more is listed before what is missing is called lost.
	standstill = 15 * time.Second
	lookEvery  = 300 * time.Millisecond
)

// missing counts the objects with receipts that the archive does not have, once it has all, or gets no more. They count once.
func (h *house) missing() (int, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(h.root, "data"))
	if err != nil {
		return 0, err
	}
	archive, err := standalone.OpenArchive(dir)
	if err != nil {
		return 0, err
	}
	last, since := -1, time.Now()
	for {
		missing, err := h.notListed(archive)
		if err != nil {
			return len(missing), err
		}
		if len(missing) != last {
			last, since = len(missing), time.Now()
		}
		if len(missing) == 0 || time.Since(since) > standstill {
			h.forget(missing)
			return len(missing), nil
		}
		time.Sleep(lookEvery)
	}
}

// notListed returns the receipts whose objects are in no list.
func (h *house) notListed(archive *standalone.Archive) (map[wire.Digest]bool, error) {
	missing := maps.Clone(h.receipts)
	var unreadable error
	for _, instrument := range []string{standalone.Probe, small, large} {
		err := archive.Read(context.Background(), instrument, true, func(r wire.Record) { delete(missing, r.Digest) })
		unreadable = errors.Join(unreadable, err)
	}
	return missing, unreadable
}

func (h *house) forget(lost map[wire.Digest]bool) {
	for d := range lost {
		delete(h.receipts, d)
	}
}
