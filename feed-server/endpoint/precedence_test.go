// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/registry"
)

// TestOrder: while the CPU limit is used up robots give way first and then bulk readers, and they come back in the other order.
func TestOrder(t *testing.T) {
	p := NewPrecedence(true, prometheus.NewRegistry())
	for i, step := range []struct {
		cpu  float64
		want string
	}{
		{0.9, " 100 100"}, // nearly
		{1, "CPU 75 100"}, {1.2, "CPU 50 100"}, {0.96, "CPU 25 100"}, {0.95, "CPU 0 100"}, {0.99, "CPU 0 75"}, {1, "CPU 0 50"},
		{0.9, "CPU 0 50"}, // neither full nor calm
		{0.7, "CPU 0 60"}, {0, "CPU 0 70"}, {0, "CPU 0 80"}, {0, "CPU 0 90"}, {0, "CPU 0 100"}, {0, "CPU 10 100"},
		{1, "CPU 0 100"}, {1, "CPU 0 75"}, {1, "CPU 0 50"}, {1, "CPU 0 25"}, {1, "CPU 0 0"}, {1, "CPU 0 0"},
	} {
		p.Look(step.cpu)
		if got := tells(p); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
	for range 25 {
		p.Look(0)
	}
	if got := tells(p); got != " 100 100" {
		t.Errorf("long after: %q", got)
	}
}

func tells(p *Precedence) string {
	cause, robots, bulk := p.GivingWay()
	return fmt.Sprintf("%s %d %d", cause, robots, bulk)
}

// TestPart: a rank that gives way in part is admitted in that part, and higher ranks are admitted
// entirely.
func TestPart(t *testing.T) {
	p := NewPrecedence(true, prometheus.NewRegistry())
	p.Look(1)
	in := map[Rank]int{}
	for range 1000 {
		for _, rank := range []Rank{Robots, Bulk, People} {
			if p.admit(rank) == nil {
				in[rank]++
			}
		}
	}
	if in[Robots] != 750 || in[Bulk] != 1000 || in[People] != 1000 {
		t.Errorf("let in: %v", in)
	}
}

// TestPlacesOfRanks: robots leave places to bulk readers, and these to people, however many ask at once; a client with a token is also
// measured by the places that are kept for readers. Giving way is reported until all have found a place for a while.
func TestPlacesOfRanks(t *testing.T) {
	a := NewAdmission(AdmissionConfig{MaxSockets: 200, GiveWay: true, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	var leaving []func()
	enter := func(times int, who Identity, rank Rank) (in int) {
		for n := range times {
			r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
			r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", n%100)
			leave, refused := a.Enter(r, who, rank)
			switch {
			case refused == nil:
				leaving = append(leaving, leave)
				in++
			case refused.Status != http.StatusServiceUnavailable:
				t.Fatalf("%+v", refused)
			}
		}
		return in
	}
	// The server keeps 50 of 200 places for clients that show a token.
	robots, bulk := enter(400, Identity{}, Robots), enter(30, Identity{}, Bulk)
	if robots != 120 || bulk != 15 {
		t.Errorf("%d robots and %d bulk readers have places, want 120 and 15 of 150", robots, bulk)
	}
	a.Precedence.Look(0)
	if got := tells(a.Precedence); got != "Requests 30 50" {
		t.Errorf("%q is told", got)
	}
	if got := enter(100, uni, Bulk); got != 45 {
		t.Errorf("%d readers with a token have places, want 45: nine tenths of all are taken then", got)
	}
	if got := enter(20, Identity{}, People); got != 15 {
		t.Errorf("%d people have places, want the last 15", got)
	}
	if told := a.Precedence.TurnedAway(); told != 280+15+55 {
		t.Errorf("%d were turned away", told)
	}
	if lacked := a.lacked(); lacked != 280+15+55+5 {
		t.Errorf("%d lacked a place", lacked)
	}
	leaveAll := func() {
		for _, leave := range leaving {
			leave()
		}
	}
	leaveAll()
	for i := range calmFor + 1 { // the first look sees who lacked a place since the one before
		a.Precedence.Look(0)
		if got := tells(a.Precedence); (got == " 100 100") != (i == calmFor) {
			t.Errorf("after %d looks %q is told", i+1, got)
		}
		if enter(1, Identity{}, Robots)+enter(1, Identity{}, Bulk) != 2 {
			t.Error("there is space, and somebody has to give way")
		}
		leaveAll()
	}
}

// TestNobodyGivesWay: without --give-way ranks are the same.
func TestNobodyGivesWay(t *testing.T) {
	a := NewAdmission(AdmissionConfig{MaxSockets: 16, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	for n := range 12 {
		if _, refused := a.Enter(httptest.NewRequest(http.MethodGet, "/", http.NoBody), Identity{}, Robots); refused != nil {
			t.Fatalf("%d: %+v", n, refused)
		}
	}
}

// TestGivingWay: over HTTP, who gives way is answered 503 with Retry-After and counted, and people are not.
func TestGivingWay(t *testing.T) {
	admission := NewAdmission(AdmissionConfig{GiveWay: true, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	g := NewAccessCheck(AccessCheckConfig{Registry: func() *registry.Snapshot { return &registry.Snapshot{Revision: 1} }, Admission: admission,
		Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	ok := func(v *Request) *problem.Problem { v.W.WriteHeader(http.StatusOK); return nil }
	mux := http.NewServeMux()
	mux.Handle("/page", g.Answer(ok))
	mux.Handle("/bundle", g.AnswerBulk(ok))
	mux.Handle("POST /mirror", g.AnswerQuestion(ok))
	server := httptest.NewServer(mux)
	defer server.Close()
	ask := func(method, path, agent string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("User-Agent", agent)
		answer, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		after, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		if again := answer.StatusCode == http.StatusServiceUnavailable; again != (after >= giveWayAfter) {
			t.Errorf("%s %s by %s: %d with Retry-After %d", method, path, agent, answer.StatusCode, after)
		}
		return answer.StatusCode
	}
	look := func(times int) {
		for range times {
			g.cfg.Admission.Precedence.Look(1)
		}
	}
	all := func() string {
		return fmt.Sprint(ask("GET", "/page", "Mozilla/5.0"), ask("GET", "/page", "curl/8"), ask("GET", "/page", "Mozilla/5.0 (compatible; examplebot)"),
			ask("GET", "/bundle", "Mozilla/5.0"), ask("GET", "/bundle", "curl/8"), ask("POST", "/mirror", "curl/8"))
	}
	for _, step := range []struct {
		looks int
		want  string
	}{{0, "200 200 200 200 200 200"}, {4, "200 503 503 200 200 200"}, {4, "200 503 503 503 503 503"}} {
		look(step.looks)
		if got := all(); got != step.want {
			t.Errorf("after %d looks more: %s, want %s", step.looks, got, step.want)
		}
	}
	refused := g.cfg.Admission.Precedence.refused
	if robots, bulk := testutil.ToFloat64(refused.WithLabelValues("Robots", "CPU")), testutil.ToFloat64(refused.WithLabelValues("Bulk", "CPU")); robots != 4 || bulk != 3 {
		t.Errorf("%g robots and %g bulk readers were counted", robots, bulk)
	}
}

// TestGivingWayIsLimited: one client cannot make as many refusals as it likes, from which the operator would scale up. Beyond one client's
// limit it gets 429, which does not count as load.
func TestGivingWayIsLimited(t *testing.T) {
	limits := Limits{Robot: Rate{PerSecond: 0.001, Burst: 5}}
	g := NewAccessCheck(AccessCheckConfig{Registry: func() *registry.Snapshot { return &registry.Snapshot{Revision: 1} }, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		Admission: NewAdmission(AdmissionConfig{Limits: limits, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})})
	for range 4 {
		g.cfg.Admission.Precedence.Look(1)
	}
	serve := g.Answer(func(v *Request) *problem.Problem { v.W.WriteHeader(http.StatusOK); return nil })
	statuses := map[int]int{}
	for range 100 {
		r := httptest.NewRequest(http.MethodGet, "/page", nil)
		r.Header.Set("User-Agent", "curl/8")
		answer := httptest.NewRecorder()
		serve(answer, r)
		statuses[answer.Code]++
	}
	if lacked := g.cfg.Admission.lacked(); lacked != 5 || statuses[http.StatusServiceUnavailable] != 5 || statuses[http.StatusTooManyRequests] != 95 {
		t.Errorf("%d count as load; answers %v", lacked, statuses)
	}
}

// TestFill: the part of the places that is taken is known, and there is none of any number.
func TestFill(t *testing.T) {
	p := NewPlaces(40, podFull)
	for range 15 {
		if _, full := p.Enter(address(1), Identity{}); full != nil {
			t.Fatal(full)
		}
	}
	if got := p.Fill(); math.Abs(got-0.5) > 1e-9 { // a quarter of 40 is for readers
		t.Errorf("%g", got)
	}
	if got := NewPlaces(0, podFull).Fill(); got != 0 {
		t.Errorf("of any number: %g", got)
	}
}
