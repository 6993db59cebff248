// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// The actions of a policy are read off the history of its pools: the floor's pods are ready before the crowd, and more are asked for after
// it came.
func TestResult(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 3, 17, 12, 0, 0, 0, time.UTC)
	at := func(s int, asked, floor, ready int32) state {
		return state{At: began.Add(time.Duration(s) * time.Second), Asked: asked, Floor: floor, Pods: ready, Ready: ready}
	}
	r := result{began: began, crowd: began.Add(180 * time.Second), history: &history{states: map[string][]state{
		feedServers: {at(-10, 1, 1, 1), at(121, 1, 4, 1), at(125, 1, 4, 3), at(127, 1, 4, 4), at(182, 3, 4, 4)},
		gateways:    {at(-10, 1, 1, 1), at(300, 1, 4, 1)},
	}}}
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"decision of feed servers", r.decision(feedServers), 2},
		{"lead of feed servers", r.lead(feedServers), 53},
		{"decision of gateways", r.decision(gateways), math.Inf(1)},
		{"lead of gateways", r.lead(gateways), math.Inf(-1)},
		{"most feed servers", float64(r.history.most(feedServers)), 4},
		{"never, in the report", finite(r.decision(gateways), time.Minute), 60},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
}

// A history has each state once.
func TestHistoryNotesChanges(t *testing.T) {
	t.Parallel()
	h := &history{states: map[string][]state{}}
	for n := range 6 {
		h.note(gateways, state{At: time.Unix(int64(n), 0), Asked: int32(n / 3)})
	}
	if got := len(h.states[gateways]); got != 2 {
		t.Errorf("%d states, want 2: %v", got, h.states)
	}
}

// The parts of a storm are as long as it is.
func TestParts(t *testing.T) {
	t.Parallel()
	var sum time.Duration
	for _, p := range parts(10 * time.Minute) {
		sum += p.For
	}
	if sum != 10*time.Minute || len(kp) != intervals {
		t.Errorf("the parts take %v, and Kp is known of %d intervals", sum, len(kp))
	}
}

// HTTP/1.0 asks with all headers, and takes the answer to GET and HEAD.
func TestByOldHTTP(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto, " ", r.Method, " ", r.URL, " ", r.Header.Get("X-Forwarded-For"))
	}))
	defer server.Close()
	for method, want := range map[string]string{http.MethodGet: "HTTP/1.0 GET /archive/?x=1 192.0.2.7", http.MethodHead: ""} {
		asked, err := http.NewRequest(method, server.URL+"/archive/?x=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		asked.Header.Set("X-Forwarded-For", "192.0.2.7")
		resp, err := byOldHTTP(asked)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		if err != nil || resp.StatusCode != http.StatusOK || string(got) != want {
			t.Errorf("%s: %s, %q, %v; want %q", method, resp.Status, got, err, want)
		}
	}
}

// Only 429 with a time is no error to people.
func TestAnswers(t *testing.T) {
	t.Parallel()
	a := answers{All: 10, Limited: 2, GaveWay: 1, Unsent: 1}
	a.fail("image: %s", "timeout")
	a.fail("image: %s", "timeout")
	if a.errors() != 4 || a.refused() != 6 || a.Failed["image: timeout"] != 2 {
		t.Errorf("%d errors, %d refused, failed %v", a.errors(), a.refused(), a.Failed)
	}
}
