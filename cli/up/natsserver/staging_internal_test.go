// SPDX-License-Identifier: Apache-2.0

//go:build linux

package natsserver

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// TestStagingFallsBack: where memory cannot be written, or the server stages batches elsewhere than is expected, the start says so, leaves nothing
// in memory, and batches are staged on the disk.
func TestStagingFallsBack(t *testing.T) {
	noFolder := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(noFolder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, memory, batches, says string
		inMemory                    bool
	}{
		{"as it is", t.TempDir(), batchesDir, "", true},
		{"no memory", noFolder, batchesDir, "not a directory", false},
		{"another layout", t.TempDir(), "inflight", "stages no batch in the folder inflight", false},
		{"what is stored lies there", t.TempDir(), "msgs", "in the folder msgs", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log strings.Builder
			s := &Server{dir: t.TempDir(), domain: "hub", link: &uplink{}, staging: staging{memory: c.memory, batches: c.batches}}
			s.log = &logger{log: slog.New(slog.NewTextHandler(&log, nil)), link: &s.link.problems}
			var err error
			if s.opts, err = (Config{Dir: s.dir, Accounts: []byte("max_connections: 10\n")}).options(); err != nil {
				t.Fatal(err)
			}
			if err := s.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer s.Stop()
			publishBatch(t, s)
			if got := s.MinBatch() > 0; got != c.inMemory {
				t.Errorf("staged in memory: %t", got)
			}
			if !strings.Contains(log.String(), c.says) || (c.says != "") != strings.Contains(log.String(), "batches of messages are staged on the disk") {
				t.Errorf("the start says %q", log.String())
			}
			left, _ := filepath.Glob(filepath.Join(c.memory, "*"))
			if got := len(left) > 0; got != c.inMemory {
				t.Errorf("memory has %v", left)
			}
			s.stage(t.Context()) // the stream was made since
			publishBatch(t, s)
			links, _ := filepath.Glob(filepath.Join(s.opts.StoreDir, "jetstream", "*", "streams", "*", c.batches))
			if len(links) == 1 {
				if _, err := os.Readlink(links[0]); (err == nil) != c.inMemory {
					t.Errorf("%s is a link: %v", links[0], err)
				}
			}
		})
	}
}

// publishBatch publishes two messages of a batch, and sees that the stream has them.
func publishBatch(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	name := wire.ObservationStream("hub")
	stream, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{layoutStream}, AllowAtomicPublish: true})
	if err != nil {
		t.Fatal(err)
	}
	before := stream.CachedInfo().State.Msgs
	if err := errors.Join(publishInBatch(ctx, nc, "1", false), publishInBatch(ctx, nc, "2", true)); err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(ctx)
	if err != nil || info.State.Msgs != before+2 {
		t.Errorf("of a batch of two messages the stream has %+v, %v", info, err)
	}
}
