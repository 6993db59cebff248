// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

func TestNATS(t *testing.T) {
	for name, opts := range map[string]testenv.NATSOptions{
		"plain":                 {},
		"operator, TLS, domain": {Operator: true, TLS: true, Domain: "hub"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			server := testenv.NATS(t, opts)
			js := server.JetStream(t)
			testenv.CreateSite(t, js, "hub")
			if _, err := js.Publish(ctx, wire.NoticeSubject("hub", "camera"), []byte("kept")); err != nil {
				t.Fatal(err)
			}
			server.Kill()
			server.Start()
			js = server.JetStream(t)
			stream, err := js.Stream(ctx, wire.NoticeStream("hub"))
			if err != nil {
				t.Fatal(err)
			}
			m, err := stream.GetMsg(ctx, 1)
			if err != nil || string(m.Data) != "kept" {
				t.Fatalf("after a kill the message is %v, %v", m, err)
			}
			lease, err := js.KeyValue(ctx, wire.LeaseBucket("hub"))
			if err != nil {
				t.Fatal(err)
			}
			if status, err := lease.Status(ctx); err != nil || status.TTL() != wire.LeaseTTL {
				t.Fatalf("lease bucket: %v, %v", status, err)
			}
		})
	}
}

func TestNATSRefusesUnknownUsers(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{Operator: true})
	server.Connect(t)
	other := testenv.NATS(t, testenv.NATSOptions{Operator: true})
	nc, err := nats.Connect(server.URL(), other.Options()...)
	if err == nil {
		nc.Close()
		t.Fatal("a user of another server's account was let in")
	}
}

func TestMinIO(t *testing.T) {
	for name, opts := range map[string]testenv.MinIOOptions{"plain": {}, "TLS": {TLS: true}} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			server := testenv.MinIO(t, opts)
			store := server.Bucket(t, "archive")
			if err := store.Put(ctx, "a", bytes.NewReader([]byte("kept")), 4, objectstore.PutOptions{}); err != nil {
				t.Fatal(err)
			}
			server.Kill()
			if err := store.CheckBucket(ctx); !errors.Is(err, objectstore.ErrUnavailable) {
				t.Fatalf("of a killed server: %v", err)
			}
			server.Start()
			server.Pause()
			short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			_, err := store.Head(short, "a")
			cancel()
			if !errors.Is(err, objectstore.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("of a paused server: %v", err)
			}
			server.Continue()
			body, _, err := store.Get(ctx, "a", objectstore.All)
			if err != nil {
				t.Fatal(err)
			}
			defer body.Close()
			if b, err := io.ReadAll(body); err != nil || string(b) != "kept" {
				t.Fatalf("after kill and pause: %q, %v", b, err)
			}
		})
	}
}
