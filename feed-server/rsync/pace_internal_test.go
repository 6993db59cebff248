// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

const (
	// namesFollow asks for what --files-from names.
	namesFollow = "--server\x00--sender\x00-logDtpre.iLsfxCIvu\x00--files-from=-\x00--from0\x00.\x00thule/\x00\x00\x03md5\x04\x00\x00\x07\x00\x00\x00\x00"
	// manyInstruments make a list that takes more than a minute with 1 kB/s.
	manyInstruments = 8000
)

// frame is some data as a client sends it.
func frame(data string) string {
	return string([]byte{byte(len(data)), byte(len(data) >> 8), 0, frameBase}) + data
}

// everySecond does something again and again.
func everySecond(ctx context.Context, do func() error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		if do() != nil {
			return
		}
	}
}

// sendsEverySecond has a client take all, and send the same each second.
func sendsEverySecond(ctx context.Context, client net.Conn, says func() string) {
	go io.Copy(io.Discard, client)
	everySecond(ctx, func() error { _, err := io.WriteString(client, says()); return err })
}

// takesEverySecond has a client take so many bytes each second.
func takesEverySecond(ctx context.Context, client net.Conn, bytes int64) {
	everySecond(ctx, func() error { _, err := io.CopyN(io.Discard, client, bytes); return err })
}

// holders keep a turn and do next to nothing with it.
var holders = map[string]struct {
	says  string
	does  func(ctx context.Context, client net.Conn)
	cause string
}{
	"names come byte by byte": {namesFollow, func(ctx context.Context, client net.Conn) {
		sendsEverySecond(ctx, client, func() string { return frame("a") })
	}, "Names"},
	"no name comes": {namesFollow, func(ctx context.Context, client net.Conn) {
		_, _ = io.Copy(io.Discard, client)
	}, "Names"},
	"the list is taken byte by byte": {everything, func(ctx context.Context, client net.Conn) {
		_, _ = io.CopyN(io.Discard, client, 2000)
		takesEverySecond(ctx, client, 1)
	}, "Takes"},
	"nothing is taken": {everything, func(ctx context.Context, client net.Conn) {
		_, _ = io.CopyN(io.Discard, client, 2000)
		<-ctx.Done()
	}, "Takes"},
	"nothing is asked for": {everything, func(ctx context.Context, client net.Conn) {
		_, _ = io.Copy(io.Discard, client)
	}, "Requests"},
	"requests come byte by byte": {everything, func(ctx context.Context, client net.Conn) {
		n := -1
		sendsEverySecond(ctx, client, func() string { n++; return frame(deleted[4+n%11:][:1]) })
	}, "Requests"},
}

// A client that has a turn and does next to nothing gives way to one that waits, and only then. It is counted by cause.
func TestHoldersGiveWay(t *testing.T) {
	t.Parallel()
	for name, h := range holders {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, 500, func(c *Config) { c.MaxTransfers = 1 })
				ctx, stop := context.WithCancel(t.Context())
				holder, _ := connect(s, "192.0.2.1", greeting+h.says)
				defer holder.Close()
				go h.does(ctx, holder)
				time.Sleep(idleTimeout / 2)
				cut := s.metrics.cut.WithLabelValues(h.cause)
				if got := testutil.ToFloat64(cut); got != 0 || testutil.ToFloat64(s.metrics.open) != 1 {
					t.Errorf("%v are cut off while nobody waits", got)
				}
				client, _ := connect(s, "192.0.2.9", greeting+everything)
				go io.Copy(io.Discard, client)
				time.Sleep(turnPatience)
				if began := testutil.ToFloat64(s.metrics.transfers); began != 2 {
					t.Errorf("%v transfers began", began)
				}
				if got := testutil.ToFloat64(cut); got != 1 {
					t.Errorf("%v are cut off with cause %s", got, h.cause)
				}
				stop()
				client.Close()
				s.open.Wait()
			})
		})
	}
}

// A client whose link carries 1 kB/s is not cut off, though others wait all the time.
func TestThinLink(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says string
		does func(ctx context.Context, client net.Conn)
	}{
		"list": {everything, func(ctx context.Context, client net.Conn) { takesEverySecond(ctx, client, 1000) }},
		"names": {namesFollow, func(ctx context.Context, client net.Conn) {
			sendsEverySecond(ctx, client, func() string { return frame(strings.Repeat("instrument-00001\x00", 58)) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, manyInstruments, func(c *Config) { c.MaxTransfers = 1 })
				ctx, stop := context.WithCancel(t.Context())
				client, _ := connect(s, "192.0.2.1", greeting+c.says)
				go c.does(ctx, client)
				for testutil.ToFloat64(s.metrics.open) == 0 {
					time.Sleep(time.Second) // of the bubble
				}
				other, answer := connect(s, "192.0.2.9", greeting+everything)
				if said := answer("try again later"); !strings.Contains(said, "try again later") {
					t.Error("another gets the turn")
				}
				other.Close()
				if ended := testutil.ToFloat64(s.metrics.ended.WithLabelValues(endedSlow)); ended != 0 || testutil.ToFloat64(s.metrics.open) != 1 {
					t.Errorf("%v are cut off", ended)
				}
				stop()
				client.Close()
				s.open.Wait()
			})
		})
	}
}

// A filter that is sent with 1 kB/s comes through while others wait, and one that never ends is cut off.
func TestLongStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, 3, func(c *Config) { c.MaxTransfers = 1 })
		ctx, stop := context.WithCancel(t.Context())
		if _, ok := s.turns.TakeAs(ctx, netip.MustParseAddr("192.0.2.1")); !ok {
			t.Fatal("there is no turn")
		}
		go func() {
			for ctx.Err() == nil { // others wait all the time
				_, _ = s.turns.TakeAs(ctx, netip.MustParseAddr("192.0.2.8"))
			}
		}()
		synctest.Wait()
		begin := everything[:strings.Index(everything, "md5")+3]
		rule := "- " + strings.Repeat("a", 990)
		thin, _ := connect(s, "192.0.2.2", greeting+begin)
		n := 0
		go sendsEverySecond(ctx, thin, func() string {
			if n++; n > 60 {
				return frame("\x00\x00\x00\x00")
			}
			return frame(string([]byte{byte(len(rule)), byte(len(rule) >> 8), 0, 0}) + rule)
		})
		endless, _ := connect(s, "192.0.2.3", greeting+begin)
		go sendsEverySecond(ctx, endless, func() string { return strings.Repeat(alive, 4000) })
		time.Sleep(3 * time.Minute)
		if slow, malformed := testutil.ToFloat64(s.metrics.cut.WithLabelValues("Start")), testutil.ToFloat64(s.metrics.ended.WithLabelValues(endedMalformed)); slow != 0 || malformed != 1 {
			t.Errorf("%v are too slow, and %v send more than a start has", slow, malformed)
		}
		stop()
		for _, c := range []net.Conn{thin, endless} {
			c.Close()
		}
		s.open.Wait()
	})
}
