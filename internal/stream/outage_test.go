// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
)

// TestServerKilled publishes from many goroutines while the server is killed and started again, several times: what is
// acknowledged is there, and nothing is there twice.
func TestServerKilled(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{})
	nc := connect(t, server)
	s := makeStream(t, nc, nil)
	c := newCommitter(t, nc, func(cfg *CommitterConfig) { cfg.AckWait = 2 * time.Second })

	const publishers = 64
	var next atomic.Int64
	stop := make(chan struct{})
	var running sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); running.Wait() })
	ctx, cancel := context.WithCancel(context.Background())
	defer func() { cancel(); end() }() // a test that fails waits for no server
	for range publishers {
		running.Add(1)
		go func() {
			defer running.Done()
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := c.Publish(ctx, message(id(int(next.Add(1)-1)), make([]byte, 300))); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		}()
	}
	for range 3 {
		enough := next.Load() + 1000
		testenv.Await(t, "a thousand more are published", func() bool { return next.Load() >= enough })
		server.Kill()
		time.Sleep(100 * time.Millisecond) // the outage
		server.Start()
	}
	end()
	checkOnce(t, s, int(next.Load()))
}

// TestServerSilent: a server that is paused and continued answers late, when the same was already sent again.
func TestServerSilent(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{})
	nc := connect(t, server)
	s := makeStream(t, nc, nil)
	c := newCommitter(t, nc, func(cfg *CommitterConfig) { cfg.AckWait = 300 * time.Millisecond })
	if err := c.Publish(t.Context(), message(id(0), nil)); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	var settled sync.WaitGroup
	for i := 1; i < 200; i++ {
		settled.Add(1)
		err := c.Submit(t.Context(), message(id(i), nil), func(_ Ack, err error) {
			if err != nil {
				t.Error(err)
			}
			settled.Done()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := c.Publish(ctx, message(id(200), nil)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("while the server is silent: %v, want ErrUnavailable", err)
	}
	server.Continue()
	settled.Wait()
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	checkOnce(t, s, 201) // the last one too: its publisher did not wait, the committer did
}

// TestLeaderSilent: a silent leader is waited for as long as in any request of JetStream, also by a caller without a deadline.
func TestLeaderSilent(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{})
	js, err := jetstream.New(connect(t, server), jetstream.WithDefaultTimeout(300*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "B"}); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	asked := make(chan error, 1)
	go func() {
		_, _, err := Newest(context.WithoutCancel(t.Context()), js, "B", "k")
		asked <- err
	}()
	select {
	case err := <-asked:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("of a silent leader: %v, want DeadlineExceeded", err)
		}
	case <-time.After(testenv.Patience):
		t.Fatal("the question of a silent leader does not end")
	}
	server.Continue()
	if _, _, err := Newest(t.Context(), js, "B", "k"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("after it: %v, want ErrKeyNotFound", err)
	}
}

// TestStartWithoutServer: the connection is made before there is a server, and messages wait for server and stream.
func TestStartWithoutServer(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{Unsynced: true})
	server.Kill()
	nc := connect(t, server)
	c := newCommitter(t, nc, nil)
	result := make(chan error, 1)
	go func() { result <- c.Publish(context.Background(), message(id(0), nil)) }()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := WaitConnected(ctx, nc); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("without a server: %v", err)
	}
	server.Start()
	if err := WaitConnected(t.Context(), nc); err != nil {
		t.Fatal(err)
	}
	s := makeStream(t, nc, nil)
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	checkOnce(t, s, 1)
}

// TestCloseDuringOutage: what cannot be committed before Close's context ends is settled as unavailable.
func TestCloseDuringOutage(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{Unsynced: true})
	nc := connect(t, server)
	makeStream(t, nc, nil)
	c := newCommitter(t, nc, nil)
	server.Kill()
	var unavailable atomic.Int64
	for i := range 1500 { // more than a group
		err := c.Submit(t.Context(), message(id(i), nil), func(_ Ack, err error) {
			if errors.Is(err, ErrUnavailable) {
				unavailable.Add(1)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close: %v", err)
	}
	if n := unavailable.Load(); n != 1500 {
		t.Errorf("%d messages were settled as unavailable, want 1500", n)
	}
}

// TestConnectSecure: mutual TLS and credentials from files, and an inbox prefix.
func TestConnectSecure(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{Operator: true, TLS: true, Unsynced: true})
	permissions := jwt.Permissions{
		Pub: jwt.Permission{Allow: []string{"t.>", "$JS.API.>"}},
		Sub: jwt.Permission{Allow: []string{"_INBOX_pool.>"}},
	}
	cfg := Config{
		Servers: []string{server.URL()}, Name: "pool-0", TLSDir: server.CA.Dir(t, "client"),
		CredentialsFile: server.UserCreds(t, permissions), InboxPrefix: "_INBOX_pool",
	}
	nc, err := Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if err := WaitConnected(ctx, nc); err != nil {
		t.Fatal(err)
	}
	s := makeStream(t, nc, func(cfg *jetstream.StreamConfig) { cfg.AllowDirect = false })
	c := newCommitter(t, nc, nil)
	if err := c.Publish(ctx, message(id(0), nil)); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	server.Start()
	if err := c.Publish(ctx, message(id(1), nil)); err != nil {
		t.Fatal(err)
	}
	checkOnce(t, s, 2)

	cfg.CredentialsFile += ".missing"
	if _, err := Connect(t.Context(), cfg); err == nil {
		t.Error("a credentials file that is missing is no error")
	}
	cfg.CredentialsFile, cfg.TLSDir = "", t.TempDir()
	if _, err := Connect(t.Context(), cfg); err == nil {
		t.Error("a folder with neither ca.crt nor tls.crt is no error")
	}

	// Without ca.crt the system's authorities decide, and none of them signed for this server.
	cfg.TLSDir = server.CA.Dir(t, "client")
	if err := os.Remove(filepath.Join(cfg.TLSDir, fileCA)); err != nil {
		t.Fatal(err)
	}
	opts, err := cfg.options()
	if err != nil {
		t.Fatal(err)
	}
	opts = append(opts, nats.RetryOnFailedConnect(false))
	unknown := x509.UnknownAuthorityError{}
	if _, err := nats.Connect(server.URL(), opts...); !errors.As(err, &unknown) {
		t.Errorf("with a certificate alone: %v, want a server of an unknown authority", err)
	}
}
