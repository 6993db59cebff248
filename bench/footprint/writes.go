// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/bench/internal/standalone"
)

var (
	idle      = flag.Duration("idle", 2*time.Minute, "how long writes to the disk are counted without traffic")
	datagrams = flag.Duration("datagrams", 11*time.Minute, "how long they are counted with datagrams: longer than the greatest age of a segment, 10m (0: writes are not counted)")
	payload   = flag.Int("payload", 100, "bytes of a datagram")
)

// The goals: synced writes a second without traffic, and with a datagram a second of each instrument; bytes written to those of the datagrams.
const maxIdleSyncs, maxSyncs, maxWritten = 0.2, 2, 5

// settle is how long what a start and new traffic change is written.
const settle = 30 * time.Second

// measureWrites counts what a Site writes that receives nothing, and then a datagram a second of each instrument.
func measureWrites(l *lab.Lab, r *report.Report) error {
	if _, err := exec.LookPath("strace"); err != nil {
		r.Note("Writes to the disk are not counted: install strace.")
		return nil
	}
	var all []standalone.Instrument
	for i := range *instruments {
		all = append(all, standalone.Instrument{Name: name(i), Telemetry: true})
	}
	w := &writes{site: standalone.New(l, standalone.Options{Instruments: all}), trace: filepath.Join(l.TempDir(), "strace")}
	defer w.close()
	if err := w.site.Start(); err != nil {
		return err
	}
	calm, err := w.during(*idle, func() error { return nil })
	if err != nil {
		return err
	}
	busy, err := w.during(*datagrams, w.send)
	if err != nil {
		return err
	}
	r.Add("idle: synced writes", candidate, "1/s", calm.syncs)
	r.Add("idle: written", candidate, "B/s", calm.written)
	r.Add("datagrams: synced writes", candidate, "1/s", busy.syncs)
	r.Add("datagrams: sent", candidate, "B/s", busy.sent)
	r.Add("datagrams: written, in pages", candidate, "B/s", busy.written)
	for _, kind := range kinds {
		r.Add("datagrams: written to "+kind.name, candidate, "B/s", busy.by[kind.name])
	}
	r.Bound("idle-syncs", []float64{calm.syncs}, "<=", maxIdleSyncs)
	r.Bound("datagram-syncs", []float64{busy.syncs}, "<=", maxSyncs)
	r.Bound("datagram-written", []float64{busy.written / max(busy.sent, 1)}, "<=", maxWritten)
	r.Note("%d instruments, each with a datagram of %d B a second for %v; %v without any.", *instruments, *payload, *datagrams, *idle)
	return nil
}

// kinds of what is written, by a part of the path: the first that fits.
var kinds = []struct{ name, part string }{
	{"the stream of datagrams", "/streams/OBS_"},
	{"the stream of notices", "/streams/NOTICE_"},
	{"the ledger", "/streams/KV_LEDGER_"},
	{"reports", "/streams/KV_STATUS_"},
	{"other streams", "/streams/"},
	{"the archive", "/objects/"},
	{"the log of the API", "/api/"},
	{"the volume of the gateway", "/volumes/"},
	{"other files", ""},
}

type writes struct {
	site  *standalone.Site
	trace string
	conns []net.Conn
	sent  int
	// settled: a datagram that is refused is an error.
	settled bool
}

// counted is by second. Bytes written are in whole pages, those by kind as the process wrote them.
type counted struct {
	syncs, sent, written float64
	by                   map[string]float64
}

// during counts what is written while send is called once a second.
func (w *writes) during(length time.Duration, send func() error) (c counted, err error) {
	w.settled = false
	if err := each(settle, send); err != nil {
		return c, err
	}
	w.settled, w.sent = true, 0
	strace := exec.Command("strace", "-f", "-y", "-qq", "-s", "0", "-e", "signal=none",
		"-e", "trace=fsync,fdatasync,msync,sync_file_range,syncfs,openat,write,pwrite64", "-o", w.trace, "-p", strconv.Itoa(w.site.PID()))
	if err := strace.Start(); err != nil {
		return c, err
	}
	before, err := process.Written(w.site.PID())
	began := time.Now()
	if err == nil {
		err = each(length, send)
	}
	took := time.Since(began).Seconds()
	after, failed := process.Written(w.site.PID())
	err = errors.Join(err, failed, strace.Process.Signal(syscall.SIGINT))
	var ended *exec.ExitError
	if failed := strace.Wait(); failed != nil && !errors.As(failed, &ended) {
		err = errors.Join(err, failed)
	}
	if err != nil {
		return c, err
	}
	syncs, by, err := w.count()
	for kind := range by {
		by[kind] /= took
	}
	return counted{syncs: float64(syncs) / took, sent: float64(w.sent) / took, written: float64(after-before) / took, by: by}, err
}

// each calls send once a second.
func each(length time.Duration, send func() error) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for end := time.Now().Add(length); time.Now().Before(end); <-tick.C {
		if err := send(); err != nil {
			return err
		}
	}
	return nil
}

// send sends a datagram of each instrument, spread over most of a second.
func (w *writes) send() error {
	began, apart := time.Now(), 800*time.Millisecond/time.Duration(*instruments)
	for i := range *instruments {
		if i == len(w.conns) {
			conn, err := net.Dial("udp", w.site.Address(name(i)))
			if err != nil {
				return err
			}
			w.conns = append(w.conns, conn)
		}
		n, err := w.conns[i].Write(bytes.Repeat([]byte("7"), *payload))
		if err != nil && (w.settled || !errors.Is(err, syscall.ECONNREFUSED)) {
			return err
		}
		w.sent += n
		time.Sleep(time.Until(began.Add(time.Duration(i+1) * apart)))
	}
	return nil
}

func (w *writes) close() {
	for _, conn := range w.conns {
		_ = conn.Close()
	}
}

var (
	// syncOf are the lines of strace for a sync of a file, or for one that is opened so that its writes are synced.
	syncOf = regexp.MustCompile(`(?:fsync|fdatasync|msync|sync_file_range|syncfs)\(\d+<([^>]*)>|O_D?SYNC.*= \d+<([^>]*)>`)
	// writeOf are those for a write, and how long it is.
	writeOf = regexp.MustCompile(`(?:write|pwrite64)\(\d+<([^>]*)>, ""[.]*, (\d+)`)
)

// count counts synced writes to the data folder, and the bytes written there by kind, in what strace wrote.
func (w *writes) count() (syncs int, by map[string]float64, err error) {
	f, err := os.Open(w.trace)
	if err != nil {
		return 0, nil, err
	}
	defer f.Close()
	by = map[string]float64{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() { // the second half of a call that was interrupted names no file
		if found := syncOf.FindStringSubmatch(lines.Text()); found != nil && strings.HasPrefix(found[1]+found[2], w.site.DataDir) {
			syncs++
		}
		if found := writeOf.FindStringSubmatch(lines.Text()); found != nil && strings.HasPrefix(found[1], w.site.DataDir) {
			n, _ := strconv.Atoi(found[2])
			by[kindOf(strings.TrimPrefix(found[1], w.site.DataDir))] += float64(n)
		}
	}
	return syncs, by, lines.Err()
}

func kindOf(path string) string {
	for _, kind := range kinds {
		if strings.Contains(path, kind.part) {
			return kind.name
		}
	}
	return ""
}
