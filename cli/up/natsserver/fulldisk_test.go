// SPDX-License-Identifier: Apache-2.0

//go:build linux

package natsserver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/cli/up/natsserver"
	"github.com/substorm/substorm/internal/diskbudget"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
)

// filler takes space of a disk until it is removed.
type filler string

// fill leaves so many bytes free, of a disk that no other program writes to.
func fill(t *testing.T, disk string, leave int64) filler {
	t.Helper()
	free, _, err := diskbudget.Space(disk)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(disk, "filler")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(syscall.Fallocate(int(f.Fd()), 0, 0, free-leave), f.Close()); err != nil {
		t.Fatal(err)
	}
	return filler(path)
}

func (f filler) remove(t *testing.T) {
	t.Helper()
	if err := os.Remove(string(f)); err != nil {
		t.Fatal(err)
	}
}

// TestFullDisk: a server that starts on a full disk stores as soon as there is space, and one whose disk fills up while it runs stores
// again once there is space. Messages that it acknowledged are there.
func TestFullDisk(t *testing.T) {
	_, disk := testenv.DiskOf(t, 128<<20)
	config, creds := accounts(t)
	_, size, err := diskbudget.Space(disk)
	if err != nil {
		t.Fatal(err)
	}
	full := fill(t, disk, 2<<20)
	s, err := natsserver.Start(t.Context(), natsserver.Config{Dir: filepath.Join(disk, "nats"), Domain: "hub", Accounts: config,
		MaxStore: diskbudget.StreamBytes(size), Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	tended := make(chan error, 1)
	go func() { tended <- s.Tend(ctx) }()
	defer func() { cancel(); <-tended }()
	stream.Embed(s)
	defer stream.Embed(nil)
	nc, err := stream.Connect(t.Context(), stream.Config{Servers: []string{stream.EmbeddedURL}, Credentials: creds})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}

	full.remove(t)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OBS_hub", Subjects: []string{"obs.hub.>"}, MaxBytes: 64 << 20}); err != nil {
		t.Fatalf("a stream that fits once there is space: %v", err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LARGE", Subjects: []string{"large"}, MaxBytes: 64 << 20}); err == nil {
		t.Error("a stream that the disk cannot hold beside the other one is made")
	}
	acknowledged := map[uint64]int{}
	publish := func(i int) error {
		ack, err := js.Publish(t.Context(), "obs.hub.camera", fmt.Appendf(make([]byte, 256<<10), "%d", i))
		if err == nil {
			acknowledged[ack.Sequence] = i
		}
		return err
	}
	if err := publish(0); err != nil {
		t.Fatalf("with space: %v", err)
	}

	full = fill(t, disk, 1<<20)
	sent := 1
	for ; s.Healthy() == nil; sent++ {
		if sent > 100 {
			t.Fatal("a disk with 1 MiB takes 25 MiB")
		}
		_ = publish(sent) // the last ones are not acknowledged
	}
	if s.Healthy() == nil || s.Stuck() != nil {
		t.Errorf("on a full disk the server stores nothing (%v), which is no reason to end it: %v", s.Healthy(), s.Stuck())
	}
	full.remove(t)
	for range testenv.Attempts() {
		if err = publish(sent); err == nil {
			break
		}
	}
	if err != nil || s.Healthy() != nil {
		t.Fatalf("with space again: %v, %v", err, s.Healthy())
	}
	str, err := js.Stream(t.Context(), "OBS_hub")
	if err != nil {
		t.Fatal(err)
	}
	for sequence, i := range acknowledged {
		msg, err := str.GetMsg(t.Context(), sequence)
		if err != nil || string(msg.Data[256<<10:]) != fmt.Sprint(i) {
			t.Errorf("message %d of sequence %d: %v", i, sequence, err)
		}
	}
}
