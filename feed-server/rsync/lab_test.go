// SPDX-License-Identifier: Apache-2.0

package rsync_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/feed-server/rsync"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	camera = archivetest.Camera
	riometer,
	hidden,
	fresh = "riometer-1", "hidden", "fresh"
)

// noon is when the first objects were received: yesterday.
var noon = time.Now().UTC().Truncate(24 * time.Hour).Add(-12 * time.Hour).Add(123456789)

// lab is an archive with a server of rsync's.
type lab struct {
	*archivetest.Lab
	server *rsync.Server
	module string
	// metrics are the server's.
	metrics *prometheus.Registry

	mu      sync.Mutex
	counted map[string]int64
}

// newLab has a camera and a riometer with public archives, an instrument that is Restricted, and
// one whose data is under embargo for a day.
func newLab(t testing.TB, change ...func(*rsync.Config)) *lab {
	t.Helper()
	public := func(name string) wire.InstrumentEntry {
		return wire.InstrumentEntry{Instrument: name, UID: name, Generation: 1, Access: archivetest.Public}
	}
	closed, late := public(hidden), public(fresh)
	closed.Access = archivetest.Restricted
	late.Access = &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic, EmbargoMillis: (36 * time.Hour).Milliseconds()}
	l := &lab{Lab: archivetest.New(t, public(riometer), closed, late), counted: map[string]int64{}, metrics: prometheus.NewRegistry()}
	l.serve(change...)
	return l
}

// serve begins to answer.
func (l *lab) serve(change ...func(*rsync.Config)) {
	l.Helper()
	cfg := rsync.Config{
		Site: archivetest.Site, Listen: "127.0.0.1:0", Catalog: l.Catalog, Store: l.Store, Registry: l.Snapshot, Logger: l.Logger, Metrics: l.metrics,
		Admission: endpoint.NewAdmission(endpoint.AdmissionConfig{Logger: l.Logger, Metrics: l.metrics}),
		Count: func(instrument, _ string, class endpoint.Class, _ int, bytes int64) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.counted[instrument+" "+class.String()] += bytes
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	server, err := rsync.New(cfg)
	if err != nil {
		l.Fatal(err)
	}
	l.server = server
	l.module = "rsync://" + server.Address() + "/" + archivetest.Site
	ctx, stop := context.WithCancel(l.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	l.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			l.Error(err)
		}
		over, cancel := context.WithTimeout(context.Background(), testenv.Patience)
		defer cancel()
		if err := server.Drain(over); err != nil {
			l.Error(err)
		}
	})
}

// at says when an object was received.
func at(when time.Time) func(*wire.Record) {
	return func(r *wire.Record) { r.ReceivedAt = when }
}

// fill puts objects of several days into the archive, and returns those that everybody
// may have by their paths in the module.
func (l *lab) fill() map[string]string {
	l.Helper()
	all := map[string]string{}
	put := func(instrument, path, body string, when time.Time) wire.Record {
		if instrument == camera || instrument == riometer {
			all[instrument+"/"+path] = body
		}
		return l.Put(instrument, path, body, at(when))
	}
	put(camera, "readme.txt", "what this is\n", noon)
	put(camera, "2026/11/with space & größe.jpg", noise("space", 300), noon.Add(time.Second))
	put(camera, "2026/11/-dash", "dash", noon.Add(time.Second))
	put(camera, "2026-11/a", "another folder", noon.Add(time.Second))
	put(camera, "empty", "", noon)
	put(camera, "large.bin", noise("large", 3<<20), noon)
	for i := range 20 {
		put(camera, "2026/11/24/image-"+string(rune('a'+i))+".jpg", noise("image", 1000*i), noon.Add(time.Duration(i)*time.Second))
		put(riometer, "day/"+string(rune('a'+i))+".csv", strings.Repeat("1,2,3\n", 100*i), noon.Add(-24*time.Hour).Add(time.Duration(i)*time.Second))
	}
	put(hidden, "secret", "secret", noon)
	put(fresh, "new/secret", "secret", noon)
	l.Wait(put(riometer, "last", "last", noon))
	l.List()
	return all
}

// noise is a body that does not compress.
func noise(seed string, size int) string {
	var b strings.Builder
	for sum := sha256.Sum256([]byte(seed)); b.Len() < size; sum = sha256.Sum256(sum[:]) {
		b.Write(sum[:])
	}
	return b.String()[:size]
}

// program is Debian's client.
func program(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("rsync")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("rsync is not installed")
		}
		t.Skip("rsync is not installed: apt-get install rsync")
	}
	return path
}

// run runs rsync, which must exit as it is said, and returns what it writes.
func (l *lab) run(t testing.TB, exit int, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t), append([]string{"--no-motd"}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "RSYNC_PROXY=")
	out, err := cmd.CombinedOutput()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	if got := cmd.ProcessState.ExitCode(); got != exit {
		t.Fatalf("rsync %s: exit %d, want %d\n%s", strings.Join(args, " "), got, exit, out)
	}
	return string(out)
}

// files are the files below a folder by their paths.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		all[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// counter is the value of one of the server's.
func (l *lab) counter(name string) (value float64) {
	l.Helper()
	all, err := l.metrics.Gather()
	if err != nil {
		l.Fatal(err)
	}
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				value += m.GetCounter().GetValue()
			}
		}
	}
	return value
}
