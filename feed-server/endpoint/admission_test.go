// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// guarded is a registry with an instrument of each kind of access, whose reader is uni.
func guarded() *registry.Snapshot {
	named := []string{"uni"}
	return &registry.Snapshot{
		Revision: 1,
		Instruments: map[string]wire.InstrumentEntry{
			"open":   {Instrument: "open", Access: &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}},
			"closed": {Instrument: "closed", Access: &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessRestricted, Readers: named}},
			"later":  {Instrument: "later", Access: &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic, Readers: named, EmbargoMillis: time.Hour.Milliseconds()}},
		},
		Readers: map[string]wire.ReaderEntry{"uni": {Tokens: []wire.TokenHash{wire.HashToken([]byte("salt"), "secret")}},
			"late": {Tokens: []wire.TokenHash{wire.HashToken([]byte("salt"), "another")}}},
	}
}

func request(t *testing.T, address, token string) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/archive/?ticket=hush", nil)
	if r.RemoteAddr = address + ":7"; token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// A client that shows too many unknown credentials waits. Other addresses do not, nor does a
// client that shows valid ones from the same address. The credentials are not logged, and the
// number of log lines is bounded.
func TestFailedAuthentication(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := guarded()
	a := NewAdmission(AdmissionConfig{Limits: Limits{Patience: time.Millisecond}, Logger: slog.New(slog.NewJSONHandler(&log, nil)), Metrics: prometheus.NewRegistry()})
	status := func(address, token string) int {
		who, p := a.Identify(s, request(t, address, token))
		if p != nil {
			return p.Status
		}
		if who.Reader.Anonymous() != (token == "") {
			t.Errorf("%s is %q", token, who.Reader)
		}
		return http.StatusOK
	}
	if got := status("192.0.2.1", "secret"); got != http.StatusOK {
		t.Fatal(got)
	}
	for n := range DefaultLimits().Failures.Burst {
		if got := status("192.0.2.1", fmt.Sprint("guess-", n)); got != http.StatusUnauthorized {
			t.Fatalf("guess %d: %d", n, got)
		}
	}
	for _, c := range []struct {
		what, address, token string
		want                 int
	}{
		{"one guess more", "192.0.2.1", "guess-x", http.StatusTooManyRequests},
		{"a token that is good, and was never shown", "192.0.2.1", "another", http.StatusOK},
		{"one guess more, after that", "192.0.2.1", "guess-x", http.StatusTooManyRequests},
		{"one that was shown before", "192.0.2.1", "secret", http.StatusOK},
		{"nobody in particular", "192.0.2.1", "", http.StatusOK},
		{"another address", "192.0.2.2", "another", http.StatusOK},
		{"another address's guess", "192.0.2.2", "guess-x", http.StatusUnauthorized},
	} {
		if got := status(c.address, c.token); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
	for n := range 1000 {
		status(fmt.Sprintf("198.51.%d.%d", n>>8, n&255), "guess-y")
	}
	lines := strings.Count(log.String(), "\n")
	if lines == 0 || lines > 5*guessLines.Burst || !strings.Contains(log.String(), `"address":"192.0.2.1"`) {
		t.Errorf("%d lines: %.300s", lines, log.String())
	}
	for _, secret := range []string{"guess-", "hush", "secret"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
	if n := testutil.ToFloat64(a.failures.counter); n < 1000 {
		t.Errorf("%v failures are counted", n)
	}
	// A ticket that is none counts as a token does.
	no := func() (Identity, *problem.Problem) { return Identity{}, problem.New(http.StatusUnauthorized, "no") }
	for range DefaultLimits().Failures.Burst {
		if _, p := a.Redeem(request(t, "203.0.113.1", ""), no); p.Status != http.StatusUnauthorized {
			t.Fatal(p.Status)
		}
	}
	if _, p := a.Redeem(request(t, "203.0.113.1", ""), no); p.Status != http.StatusTooManyRequests {
		t.Errorf("after too many tickets: %d", p.Status)
	}
	yes := func() (Identity, *problem.Problem) { return Identity{By: wire.NoToken()}, nil }
	if who, p := a.Redeem(request(t, "203.0.113.1", ""), yes); p != nil || who.By != wire.NoToken() {
		t.Errorf("a good ticket, after too many others: %+v", p)
	}
}

// An answer to an address that failed too often is held back, up to a number of answers: beyond it
// the client's connection is closed. Valid credentials are not held back, and few tickets are
// looked up at a time, as each lookup asks NATS.
func TestFailuresAreHeldBack(t *testing.T) {
	t.Parallel()
	s, quiet := guarded(), slog.New(slog.DiscardHandler)
	a := NewAdmission(AdmissionConfig{Limits: Limits{Patience: time.Hour, Failures: Rate{PerSecond: 1e-6, Burst: 1}}, Logger: quiet, Metrics: prometheus.NewRegistry()})
	if _, p := a.Identify(s, request(t, "192.0.2.1", "guess")); p == nil || p.Status != http.StatusUnauthorized {
		t.Fatal(p)
	}
	ctx, end := context.WithCancel(t.Context())
	var guesses sync.WaitGroup
	for range a.failures.held.address {
		guesses.Go(func() {
			if _, p := a.Identify(s, request(t, "192.0.2.1", "guess").WithContext(ctx)); p.Status != http.StatusTooManyRequests || ctx.Err() == nil {
				t.Errorf("a guess is answered %d, before it was to be: %v", p.Status, ctx.Err() == nil)
			}
		})
	}
	testenv.Await(t, "the guesses are held back", func() bool {
		a.failures.held.mu.Lock()
		defer a.failures.held.mu.Unlock()
		return a.failures.held.held >= a.failures.held.address
	})
	near, far := net.Pipe()
	if _, p := a.Identify(s, request(t, "192.0.2.1", "guess").WithContext(WithConnection(ctx, near))); p.Status != http.StatusTooManyRequests {
		t.Errorf("%+v", p)
	}
	if _, err := far.Write([]byte("x")); err == nil {
		t.Error("one guess more has its connection still")
	}
	if who, p := a.Identify(s, request(t, "192.0.2.1", "secret")); p != nil || who.Reader.String() != "uni" {
		t.Errorf("a good token beside these: %q %+v", who.Reader, p)
	}
	end()
	guesses.Wait()

	var now, most atomic.Int32
	var tickets sync.WaitGroup
	for range 10 * doubtedLookups {
		tickets.Go(func() {
			_, p := a.Redeem(request(t, "192.0.2.1", ""), func() (Identity, *problem.Problem) {
				defer now.Add(-1)
				for n := now.Add(1); ; {
					if was := most.Load(); n <= was || most.CompareAndSwap(was, n) {
						break
					}
				}
				runtime.Gosched()
				return Identity{}, nil
			})
			if p != nil {
				t.Errorf("a good ticket: %+v", p)
			}
		})
	}
	if tickets.Wait(); most.Load() > doubtedLookups {
		t.Errorf("%d tickets were looked up at a time", most.Load())
	}
}

// A proxy that is not configured is logged once, and a trusted one is not.
func TestProxyThatIsNotBelieved(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	proxies, err := ParseProxies([]string{"192.0.2.0/24"})
	if err != nil {
		t.Fatal(err)
	}
	a := NewAdmission(AdmissionConfig{Proxies: proxies, Logger: slog.New(slog.NewJSONHandler(&log, nil)), Metrics: prometheus.NewRegistry()})
	for _, address := range []string{"192.0.2.1", "198.51.100.7", "198.51.100.7"} {
		r := request(t, address, "")
		r.Header.Set("X-Forwarded-For", "203.0.113.9")
		if _, p := a.Identify(guarded(), r); p != nil {
			t.Error(p)
		}
	}
	if said := log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "198.51.100.7") || !strings.Contains(said, "spec.proxies of the FeedServer") {
		t.Errorf("%s", said)
	}
	if n := testutil.ToFloat64(a.edge.counter); n != 2 {
		t.Errorf("%v are counted", n)
	}
}

// The access log has each answer about data that is not public, for every reader, and no token.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	quiet, metrics := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	log := NewAccessLog(&out, metrics)
	s := guarded()
	g := NewAccessCheck(AccessCheckConfig{Registry: func() *registry.Snapshot { return s }, Logger: quiet, Metrics: metrics,
		Admission: NewAdmission(AdmissionConfig{AccessLog: log, Logger: quiet, Metrics: metrics})})
	age := map[string]time.Duration{"new": time.Minute, "old": 2 * time.Hour}
	mux := http.NewServeMux()
	mux.HandleFunc("/archive/{instrument}/{object}", g.Answer(func(v *Request) *problem.Problem {
		in, p := v.Instrument(v.PathValue("instrument"), v.URL.Path)
		if p == nil {
			p = v.Verdict(in, v.URL.Path, v.Now.Add(-age[v.PathValue("object")]))
		}
		if p == nil {
			v.Finish(v.URL.Path, v.Send([]byte("12345")))
		}
		return p
	}))
	mux.HandleFunc("/bundle.tar", g.Answer(func(v *Request) *problem.Problem {
		v.Share("open", 1)
		v.Share("closed", 2)
		v.W.WriteHeader(http.StatusOK)
		return nil
	}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for _, path := range []string{"/archive/open/new", "/archive/closed/old?version=2&ticket=hush&token=hush", "/archive/later/new", "/archive/later/old", "/bundle.tar"} {
		for _, token := range []string{"secret", ""} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}
	}
	server.Close() // all answers are over
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := log.Run(over); err != nil {
		t.Fatal(err)
	}
	var got []string
	for lines := bufio.NewScanner(bytes.NewReader(out.Bytes())); lines.Scan(); {
		var line AccessLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if line.Time.IsZero() || line.Address.String() != "127.0.0.1" || line.Remote == "" || line.Event != EventAnswered {
			t.Errorf("%s", lines.Bytes())
		}
		got = append(got, fmt.Sprintln(line.Reader, line.Method, line.Path, line.Instruments, line.Access, line.Status, line.Bytes))
	}
	want := []string{
		fmt.Sprintln("uni GET /archive/closed/old?version=2 [closed] Restricted 200 5"),
		fmt.Sprintln(" GET /archive/closed/old?version=2 [closed] Restricted 401", 0),
		fmt.Sprintln("uni GET /archive/later/new [later] Embargoed 200 5"),
		fmt.Sprintln(" GET /archive/later/new [later] Embargoed 404", 0),
		fmt.Sprintln("uni GET /bundle.tar [closed] Restricted 200 2"),
		fmt.Sprintln(" GET /bundle.tar [closed] Restricted 200 2"),
	}
	for i := range want {
		want[i] = strings.TrimSpace(want[i])
	}
	for i, line := range got {
		line = strings.TrimSpace(line)
		if i >= len(want) || !strings.HasPrefix(line, want[i][:strings.LastIndexByte(want[i], ' ')]) {
			t.Errorf("line %d: %s", i, line)
		}
	}
	if len(got) != len(want) || strings.Contains(out.String(), "hush") || strings.Contains(out.String(), "Bearer") {
		t.Errorf("%d lines, want %d: %s", len(got), len(want), out.String())
	}
}

// A log that cannot be written delays no request: lines are dropped, and counted; lines about
// refusals, which any client can cause, are limited.
func TestAccessLogIsBounded(t *testing.T) {
	t.Parallel()
	log := NewAccessLog(&bytes.Buffer{}, prometheus.NewRegistry())
	r := request(t, "192.0.2.1", "")
	for range accessLines + 7 {
		log.Write(r, AccessLine{Status: http.StatusOK})
	}
	if n := testutil.ToFloat64(log.dropped); n != 7 {
		t.Errorf("%v are dropped", n)
	}
	log = NewAccessLog(&bytes.Buffer{}, prometheus.NewRegistry())
	for range 1000 {
		log.Write(r, AccessLine{Status: http.StatusForbidden})
	}
	if n := len(log.lines); n < refusedLines.Burst || n > 500 || log.untold.Load()+int64(n) != 1000 {
		t.Errorf("%d lines, %d are not logged", n, log.untold.Load())
	}
}
