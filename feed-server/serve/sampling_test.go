// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http"
	"strings"
	"testing"
)

const samplingEndpoint = "/feeds/all/sampling?consumer=events"

// asksAs asks at an endpoint, with headers as they are given by name and value.
func (s *Server) asksAs(t *testing.T, method, path string, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Address()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// A page of any site asks for rates with the token that it shows itself. A password that
// the browser keeps asks for nothing, whichever page it goes out for.
func TestPagesAskForRates(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t)
	const page = "https://dashboards.example"
	first := s.asksAs(t, http.MethodOptions, samplingEndpoint, "Origin", page, "Access-Control-Request-Method", http.MethodDelete,
		"Access-Control-Request-Headers", "authorization,content-type")
	for name, wants := range map[string][]string{
		"Access-Control-Allow-Origin":  {"*"},
		"Access-Control-Allow-Methods": {http.MethodPost, http.MethodDelete},
		"Access-Control-Allow-Headers": {"Authorization", "Content-Type"},
	} {
		for _, want := range wants {
			if got := first.Header.Get(name); !strings.Contains(got, want) {
				t.Errorf("what browsers ask first: %s is %q, want %s", name, got, want)
			}
		}
	}
	const bearer = "Bearer events-token"
	kept := basic("events-token")
	for _, c := range []struct {
		what    string
		headers []string
		want    int
	}{
		{"a page with the token", []string{"Origin", page, "Authorization", bearer}, http.StatusAccepted},
		{"a page with a password that is kept", []string{"Origin", page, "Authorization", kept}, http.StatusForbidden},
		{"a page that is nowhere", []string{"Origin", "null", "Authorization", kept}, http.StatusForbidden},
		{"no page", []string{"Authorization", kept}, http.StatusAccepted},
		{"a page with a wrong token", []string{"Origin", page, "Authorization", "Bearer wrong"}, http.StatusUnauthorized},
	} {
		for _, method := range []string{http.MethodPost, http.MethodDelete} {
			resp := s.asksAs(t, method, samplingEndpoint, c.headers...)
			if resp.StatusCode != c.want {
				t.Errorf("%s, %s: %s, want %d", c.what, method, resp.Status, c.want)
			}
			if resp.Header.Get("Access-Control-Allow-Origin") != "*" {
				t.Errorf("%s, %s: the page may not read the answer", c.what, method)
			}
		}
	}
}

func basic(password string) string {
	r := http.Request{Header: http.Header{}}
	r.SetBasicAuth("anybody", password)
	return r.Header.Get("Authorization")
}

// A consumer asks for so many rates at a time, and takes nothing of another's.
func TestRequestsForRatesAreBounded(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t)
	if !s.asking.may("events") {
		t.Fatal("the first is refused")
	}
	s.asking.of["events"].SetLimit(0) // no time passes for it
	for asked := 1; ; asked++ {
		status, header, body := s.asks(t, "DELETE /feeds/{feed}/sampling", "events", "events")
		if status == http.StatusAccepted && asked < samplingBurst {
			continue
		}
		if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" || asked < samplingBurst {
			t.Fatalf("behind %d requests: %d %v %s", asked, status, header, body)
		}
		break
	}
	if status, _, _ := s.asks(t, "POST /feeds/{feed}/sampling", "events", "events"); status != http.StatusTooManyRequests {
		t.Errorf("to ask and to cancel are bounded apart: %d", status)
	}
	if !s.asking.may(otherConsumer) {
		t.Error("another consumer may not ask either")
	}
	// A client that may not ask at all does not use up any of it.
	if status, _, body := s.asks(t, "POST /feeds/{feed}/sampling", otherConsumer, "events"); status != http.StatusUnauthorized {
		t.Errorf("another's token: %d %s", status, body)
	}
	s.asking.forget(func(consumer string) bool { return consumer == otherConsumer })
	if len(s.asking.of) != 1 {
		t.Errorf("%d are known, one of which is declared", len(s.asking.of))
	}
}
