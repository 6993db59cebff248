// SPDX-License-Identifier: Apache-2.0

package hapi_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/hapi"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// narrow is a listener whose connections have little space.
type narrow struct{ net.Listener }

func (l narrow) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return c, c.(*net.TCPConn).SetWriteBuffer(64 << 10)
}

// narrowly is a client whose connections have little space, too: what it does not read
// waits in the server.
var narrowly = &http.Client{Transport: &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return c, c.(*net.TCPConn).SetReadBuffer(64 << 10)
}}}

// ruled serves a lab's data by what a registry says, and answers so many at a time. It
// returns its address; ten hours of 36,000 samples are there.
func (l *lab) ruled(t *testing.T, rules *atomic.Pointer[registry.Snapshot], requests int) string {
	t.Helper()
	const hours = 10
	for i := range hours {
		all := make([]datagram, 3600)
		for j := range all {
			all[j] = sample(second(i*3600+j), fmt.Sprintf("%d.25,%d.5,3,4,x", i, j))
		}
		l.segment(t, "mag", "raw", uint64(1+i*3600), all...)
	}
	rules.Store(&registry.Snapshot{Revision: 1, Instruments: l.instruments,
		Readers: map[string]wire.ReaderEntry{"uni": {Tokens: []wire.TokenHash{wire.HashToken([]byte("salt"), "uni-token")}}}})
	server := l.server(t, func(w *ways) { w.check.Registry, w.Requests = rules.Load, requests })
	server.Listener = narrow{server.Listener}
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL + hapi.Path + "/data?"
}

// Data that a client may no longer read is no longer sent.
func TestOver(t *testing.T) {
	t.Parallel()
	l := newLab(t, magnetometer())
	var rules atomic.Pointer[registry.Snapshot]
	url := l.ruled(t, &rules, 1) + between("mag/field", start, second(36_000))
	was := rules.Load()
	changed := func(change func(*wire.InstrumentEntry)) *registry.Snapshot {
		s := *was
		s.Instruments = maps.Clone(was.Instruments)
		in := s.Instruments["mag"]
		change(&in)
		s.Instruments["mag"] = in
		return &s
	}
	revoked := *was
	revoked.Readers = nil
	for what, to := range map[string]*registry.Snapshot{
		"nothing":                   changed(func(*wire.InstrumentEntry) {}),
		"the token is revoked":      &revoked,
		"the instrument is others'": changed(func(in *wire.InstrumentEntry) { in.Access = &wire.AccessEntry{Archive: wire.AccessRestricted} }),
		"an embargo begins": changed(func(in *wire.InstrumentEntry) {
			in.Access = &wire.AccessEntry{Archive: wire.AccessPublic, EmbargoMillis: 100 * 365 * 24 * time.Hour.Milliseconds()}
		}),
	} {
		rules.Store(was)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth("uni", "uni-token")
		resp, err := narrowly.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		rules.Store(to)
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if lines := strings.Count(string(got), "\n"); (what == "nothing") != (err == nil && lines == 36_000) || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d, %d samples, %v", what, resp.StatusCode, lines, err)
		}
	}
}

// A client that takes nothing leaves turns to another.
func TestSlowLeaveTurns(t *testing.T) {
	t.Parallel()
	l := newLab(t, magnetometer())
	var rules atomic.Pointer[registry.Snapshot]
	const turns = 4
	url := l.ruled(t, &rules, turns)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun := make(chan error, turns)
	for range turns {
		go func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+between("mag/field", start, second(36_000)), nil)
			if err == nil {
				var resp *http.Response
				if resp, err = narrowly.Do(r); err == nil {
					context.AfterFunc(ctx, func() { resp.Body.Close() })
				}
			}
			begun <- err
		}()
	}
	for range turns / 2 {
		if err := <-begun; err != nil {
			t.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+between("mag/field", start, second(10)), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("uni", "uni-token")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); resp.StatusCode != http.StatusOK || err != nil {
		t.Errorf("behind slow ones: %d %v", resp.StatusCode, err)
	}
}
