// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// The partner that is pushed to, and the reader that pulls.
const (
	partner     = "uni"
	reader      = "museum"
	readerToken = "0123456789abcdef-museum"
)

// mirror is a folder to which one run after another brings the archive.
type mirror struct {
	t      *testing.T
	name   string
	folder string
	// ledger is its name in the ledger and in reports.
	ledger string
	// command of the run with this number.
	command func(ctx context.Context, run int) *exec.Cmd

	mu             sync.Mutex
	running        *exec.Cmd
	runs, complete int
	stop, ended    chan struct{}
}

// startMirrors starts both: one that is pushed to by rsync, and one that pulls and confirms what it has.
func (l *lab) startMirrors() {
	l.t.Helper()
	address, folder := testenv.RsyncDaemon(l.t, "")
	l.registry.Mirrors = []wire.MirrorEntry{{
		UID: "m", Generation: 1, Partner: partner, Direction: wire.MirrorPush, Rsync: &wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: address, Module: "data"}},
		Schedule: &wire.MirrorSchedule{Cron: "@hourly", TimeZone: "UTC", Concurrency: wire.MirrorForbid}, Limits: wire.MirrorLimits{Connections: 4, TimeZone: "UTC"},
		Selection: wire.MirrorSelection{Instruments: l.instruments(), Versions: wire.MirrorVersionsCurrent},
		Verify:    wire.MirrorVerifyDigest, VerifyPercent: 100, Prune: wire.MirrorPruneNever, Retractions: wire.MirrorDelete, SafetyStopPercent: 10, HoldMillis: 3_600_000,
	}}
	l.registry.Readers = []wire.ReaderEntry{{Reader: reader, Tokens: []wire.TokenHash{wire.HashToken([]byte("salt"), readerToken)},
		Pulls: &wire.PullsEntry{HoldMillis: 3_600_000}}}
	l.declare()
	scratch, none := l.t.TempDir(), l.t.TempDir()
	toNATS, toStore := testenv.StartRelay(l.t, l.nats.Address()), testenv.StartRelay(l.t, l.minio.Address())
	program := testenv.Program(l.t, "mirror-jobs")
	push := &mirror{t: l.t, name: "the push to " + partner, folder: folder, ledger: partner, command: func(ctx context.Context, run int) *exec.Cmd {
		name := partner + "-" + strconv.Itoa(run)
		return exec.CommandContext(ctx, program, "--site", site, "--partner", partner, "--run", name, "--pod", name, "--scratch-dir", scratch, "--credentials-dir", none,
			"--listen-http", "", "--nats-servers", "nats://"+toNATS.Address(), "--s3-endpoint", "http://"+toStore.Address(), "--s3-bucket", bucket,
			"--s3-credentials-dir", l.secrets, "--log-level", "warn")
	}}

	ca := testenv.NewCA(l.t)
	certificate := ca.Dir(l.t, "feed-server")
	var feeds *testenv.FeedServer
	l.run("the feed server", func(nats, s3 string) *testenv.Process {
		feeds = testenv.StartFeedServer(l.t, testenv.FeedServerOptions{Site: site, NATS: l.nats,
			Flags: []string{"--nats-servers", nats, "--s3-endpoint", s3, "--s3-bucket", bucket, "--s3-credentials-dir", l.secrets, "--tls-dir", certificate}})
		return feeds.Process
	})
	token := filepath.Join(l.t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(readerToken), 0o600); err != nil {
		l.t.Fatal(err)
	}
	pulled := l.t.TempDir()
	pull := &mirror{t: l.t, name: "the pull of " + reader, folder: pulled, ledger: "reader_" + reader, command: func(ctx context.Context, _ int) *exec.Cmd {
		return exec.CommandContext(ctx, l.cli, "mirror", "pull", "--quiet", "--token-file", token, "--tls-ca", filepath.Join(certificate, "ca.crt"), "https://"+feeds.Address(), pulled)
	}}
	l.mirrors = []*mirror{push, pull}
	for _, m := range l.mirrors {
		m.start()
	}
	l.mirrorFaults = []fault{
		{push.name, "is killed", push.kill, func() {}, ofProgram},
		{pull.name, "is killed", pull.kill, func() {}, ofProgram},
		{"the connection of " + push.name + " to NATS", "is cut", toNATS.Cut, toNATS.Mend, ofServer},
		{"the connection of " + push.name + " to the object store", "is cut", toStore.Cut, toStore.Mend, ofServer},
	}
}

// instruments of both pools, by name.
func (l *lab) instruments() []string {
	var names []string
	for _, e := range l.registry.Instruments {
		names = append(names, e.Instrument)
	}
	return names
}

// start makes one run after another until finish.
func (m *mirror) start() {
	m.stop, m.ended = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(m.ended)
		for {
			_, _ = m.run(context.Background()) // faults end runs; finish requires one that is whole
			select {
			case <-m.stop:
				return
			case <-time.After(time.Second):
			}
		}
	}()
}

// run makes one run, and returns what it printed.
func (m *mirror) run(ctx context.Context) (string, error) {
	var out output
	m.mu.Lock()
	m.runs++
	c := m.command(ctx, m.runs)
	c.Stdout, c.Stderr = &out, &out
	err := c.Start()
	if err == nil {
		m.running = c
	}
	m.mu.Unlock()
	if err == nil {
		err = c.Wait()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running = nil; err == nil {
		m.complete++
	}
	return out.String(), err
}

// kill ends the run that is on its way, if there is one.
func (m *mirror) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running != nil {
		_ = m.running.Process.Kill()
	}
}

// finish ends the runs that follow each other.
func (m *mirror) finish() {
	close(m.stop)
	<-m.ended
}

// output keeps the end of what a run prints.
type output struct{ text []byte }

func (o *output) Write(b []byte) (int, error) {
	o.text = append(o.text, b...)
	if more := len(o.text) - 4096; more > 0 {
		o.text = o.text[more:]
	}
	return len(b), nil
}

func (o *output) String() string { return string(o.text) }

// checkMirrors waits until one run of each mirror is whole, its folder has each object that the senders have a receipt for
// once, with its bytes and under its name, and the datagrams that are in segments, and the report says the same.
func (l *lab) checkMirrors(senders []*sender, stored map[string]uint64) {
	l.t.Helper()
	for _, m := range l.mirrors {
		m.finish()
		l.await(m.name+" has all", func(ctx context.Context) error {
			if said, err := m.run(ctx); err != nil {
				return fmt.Errorf("%w: %s", err, said)
			}
			return m.compare(senders, stored)
		})
		l.t.Logf("%s: %d runs, %d of them whole", m.name, m.runs, m.complete)
	}
	l.await("the report says what mirrors have", func(ctx context.Context) error { return l.compareReport(ctx, senders, stored) })
}

// compare says how the folder differs from what was sent.
func (m *mirror) compare(senders []*sender, stored map[string]uint64) error {
	for _, s := range senders {
		for instrument, receipted := range s.receipted {
			if err := m.compareObjects(instrument, receipted); err != nil {
				return err
			}
		}
		in, err := m.datagrams(s.pool.mag())
		if err != nil {
			return err
		}
		if in != stored[s.pool.mag()] {
			return fmt.Errorf("%s: %d datagrams of %s are there, and %d in segments", m.name, in, s.pool.mag(), stored[s.pool.mag()])
		}
	}
	return nil
}

// compareObjects: what has a name from its sender lies below n/.
func (m *mirror) compareObjects(instrument string, receipted map[wire.Digest]string) error {
	got := map[wire.Digest]int{}
	unsent, example := 0, ""
	err := m.files(instrument, func(name string, content []byte) error {
		sum := wire.Digest(sha256.Sum256(content))
		if want, sent := receipted[sum]; !sent || want != "" && name != "n/"+want {
			unsent++
			example = fmt.Sprintf(", as %s (%q was sent)", name, want)
		}
		got[sum]++
		return nil
	})
	if err != nil {
		return err
	}
	missing, twice := 0, 0
	for sum := range receipted {
		switch n := got[sum]; {
		case n == 0:
			missing++
		case n > 1:
			twice++
		}
	}
	if missing+twice+unsent > 0 {
		return fmt.Errorf("%s: of %d objects of %s %d are missing, %d are there more than once, and %d files are of none, or have another name%s",
			m.name, len(receipted), instrument, missing, twice, unsent, example)
	}
	return nil
}

// datagrams counts those of an instrument in the folder's segments, each once.
func (m *mirror) datagrams(instrument string) (uint64, error) {
	in := map[uint64]bool{}
	err := filepath.WalkDir(filepath.Join(m.folder, instrument), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return decode.Datagrams(f, func(payload []byte, _ time.Time) error {
			number, err := numberOf(instrument, payload)
			if err == nil && in[number] {
				err = fmt.Errorf("%s: the datagram %d is in two segments", path, number)
			}
			in[number] = true
			return err
		})
	})
	return uint64(len(in)), err
}

// files calls each with the name within the instrument and the content of its files.
func (m *mirror) files(instrument string, each func(name string, content []byte) error) error {
	root := filepath.Join(m.folder, instrument)
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return each(name, content)
	})
}

// compareReport says where `substorm archive report` has other figures than senders and segments.
func (l *lab) compareReport(ctx context.Context, senders []*sender, stored map[string]uint64) error {
	said, err := l.substorm(ctx, "archive", "report", "--since", l.began.Format(time.DateOnly), "-o", "json")
	if err != nil {
		return err
	}
	var report struct {
		Agree       bool
		Instruments []struct {
			Instrument  string
			Differences []string
			Mirrored    map[string]uint64
		}
	}
	if err := json.Unmarshal([]byte(said), &report); err != nil {
		return err
	}
	got := map[string]map[string]uint64{}
	for _, i := range report.Instruments {
		if len(i.Differences) > 0 {
			return fmt.Errorf("%s: %v", i.Instrument, i.Differences)
		}
		got[i.Instrument] = i.Mirrored
	}
	for instrument, want := range counts(senders, stored) {
		for _, m := range l.mirrors {
			if n := got[instrument][m.ledger]; n != want {
				return fmt.Errorf("%s: the report says that %s has %d of %d", instrument, m.ledger, n, want)
			}
		}
	}
	if !report.Agree {
		return fmt.Errorf("the report does not agree with the ledger: %s", said)
	}
	return nil
}

// counts are the objects and datagrams that mirrors must have, by instrument.
func counts(senders []*sender, stored map[string]uint64) map[string]uint64 {
	want := map[string]uint64{}
	for _, s := range senders {
		for instrument, receipted := range s.receipted {
			want[instrument] = uint64(len(receipted))
		}
		want[s.pool.mag()] = stored[s.pool.mag()]
	}
	return want
}
