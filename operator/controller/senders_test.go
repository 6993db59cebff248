// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/accept"
)

// away is a way to the API server on which questions for one Secret find none, or
// something else that answers.
type away struct {
	http.RoundTripper
	secret string
	// fails is nil while the API server itself answers.
	fails atomic.Pointer[func(*http.Request) (*http.Response, error)]
	asked atomic.Int32 // without an answer
}

// RoundTrip implements http.RoundTripper.
func (a *away) RoundTrip(r *http.Request) (*http.Response, error) {
	if fails := a.fails.Load(); fails != nil && strings.HasSuffix(r.URL.Path, "/secrets/"+a.secret) {
		a.asked.Add(1)
		return (*fails)(r)
	}
	return a.RoundTripper.RoundTrip(r)
}

// TestTokensReachTheRegistry: as hashes, updated when their Secret changes, and removed once it is gone, but not while the API server
// cannot be asked.
func TestTokensReachTheRegistry(t *testing.T) {
	w := newWorld(t)
	path := &away{secret: "tokens"}
	w.between = func(api http.RoundTripper) http.RoundTripper {
		path.RoundTripper = api
		return path
	}
	w.start()
	first, _, ports := w.ports()
	const old, renewed = "0123456789abcdef-the-old-token", "fedcba9876543210-the-new-token"
	w.secret("pool-tls", map[string]string{"tls.crt": "c", "tls.key": "k"})
	w.applySite("hub", "hub")
	w.applyPool("pool", ports+", tls: {certificateSecretRef: {name: pool-tls}}")
	w.apply(fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: camera}
spec: {siteRef: {name: hub}, type: AllSkyCamera, listeners: [{name: http, protocol: HTTP, port: %d, tokenSecretKeyRef: {name: tokens, key: camera}, http: {tlsMode: Server}}]}
`, first))
	c := w.awaits("Instrument", "camera", "Accepted", "False/SecretNotFound")
	says(t, c, `Secret "tokens"`, "spec.listeners[name=http].tokenSecretKeyRef", "create it")

	tokens := w.secret("tokens", map[string]string{"camera": old})
	c = w.awaits("Instrument", "camera", "Accepted", "False/SecretNotLabeled")
	says(t, c, `Secret "tokens"`, "spec.listeners[name=http].tokenSecretKeyRef", "kubectl label secret tokens substorm.dev/tokens=true")
	w.label(tokens)
	g := w.gateway("pool", "pool-0")
	g.follow()
	takes := func(what string, want ...string) {
		t.Helper()
		eventually(t, what, func() error {
			e, err := g.entry("camera")
			if err != nil {
				return err
			}
			raw, _ := wire.Encode(e)
			for _, token := range []string{old, renewed} {
				if strings.Contains(string(raw), token) {
					t.Fatal("the registry holds a token")
				}
			}
			var got []string
			for _, h := range e.Listeners[0].Tokens {
				for _, token := range []string{old, renewed} {
					if h.Matches(token) {
						got = append(got, token)
					}
				}
			}
			if strings.Join(got, ",") != strings.Join(want, ",") || e.Listeners[0].TLS != wire.TLSServer {
				return fmt.Errorf("it takes %q with tls %q", got, e.Listeners[0].TLS)
			}
			return nil
		})
	}
	takes("the token", old)
	before, err := g.entry("camera")
	if err != nil {
		t.Fatal(err)
	}

	changed := time.Now()
	tokens.StringData = map[string]string{"camera": old + "\n" + renewed + "\n"}
	if err := w.Update(t.Context(), tokens); err != nil {
		t.Fatal(err)
	}
	takes("both tokens", old, renewed)
	t.Logf("in the registry %v after the Secret changed", time.Since(changed).Round(time.Millisecond))
	if after, err := g.entry("camera"); err != nil || after.Listeners[0].Tokens[0] != before.Listeners[0].Tokens[0] {
		t.Errorf("the hash of a token that stayed has changed: %v", err)
	}

	w.remove(&corev1.Secret{ObjectMeta: tokens.ObjectMeta})
	c = w.awaits("Instrument", "camera", "Accepted", "False/SecretNotFound")
	says(t, c, "until then that listener takes no token")
	takes("no token")
	if e, err := g.entry("camera"); err != nil || len(e.Listeners[0].Tokens) == 0 {
		t.Errorf("a listener without a token asks for none: %+v, %v", e, err)
	}
	tokens = w.secret("tokens", map[string]string{"camera": renewed})
	w.label(tokens)
	takes("the new token", renewed)
	w.awaits("Instrument", "camera", "Accepted", "True/Accepted")

	for name, fails := range map[string]func(*http.Request) (*http.Response, error){
		"no connection": func(*http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED },
		"a proxy that knows no way": func(r *http.Request) (*http.Response, error) {
			rec := httptest.NewRecorder()
			http.NotFound(rec, r)
			return rec.Result(), nil
		},
	} {
		asked := path.asked.Load()
		path.fails.Store(&fails)
		eventually(t, name, func() error {
			if n := path.asked.Load() - asked; n < 3 {
				return fmt.Errorf("asked %d times", n)
			}
			return nil
		})
		takes("the token, with "+name, renewed)
	}
	w.remove(&corev1.Secret{ObjectMeta: tokens.ObjectMeta})
	path.fails.Store(nil)
	takes("no token, once the API server says so")
}

// TestRefusalsBecomeEvents: of the instrument that a sender nearly was.
func TestRefusalsBecomeEvents(t *testing.T) {
	w := newWorld(t)
	w.start()
	first, _, ports := w.ports()
	w.applySite("hub", "hub")
	w.applyPool("pool", ports)
	w.applyInstrument("camera", first, "")
	g := w.gateway("pool", "pool-0")
	g.follow()
	g.awaitPort("camera", first)
	w.awaits("Instrument", "camera", "Ready", "True/Ready")
	refused := func(count uint64) {
		t.Helper()
		now := time.Now()
		data, err := wire.Encode(wire.RefusalStatus{Incarnation: "one", ReportedAt: now, Refused: map[wire.Cause]wire.Refused{
			wire.CauseUnknownSource: {Count: count, Source: "198.51.100.7", Protocol: "TCP", Port: uint16(first), At: now},
		}})
		if err == nil {
			err = g.put(wire.StatusBucket("hub"), wire.RefusalStatusKey("camera", "pool-0"), data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	refused(1)
	w.sawEvent("camera", "Refuse", string(wire.CauseUnknownSource), "Warning")
	for n := range uint64(20) { // one event in ten minutes
		refused(2 + n)
	}
	refused(30)
	g.received("camera", 0, 1) // reported later: all refusals were taken
	w.awaits("Instrument", "camera", "DataFlowing", "True/Flowing")
	var events eventsv1.EventList
	if err := w.List(t.Context(), &events, client.InNamespace(w.namespace)); err != nil {
		t.Fatal(err)
	}
	var told []error
	for i := range events.Items {
		if e := &events.Items[i]; e.Action == "Refuse" {
			told = append(told, errors.New(e.Note))
		}
	}
	if len(told) != 1 || !strings.Contains(told[0].Error(), "at 198.51.100.7 on TCP port") || !strings.Contains(told[0].Error(), "add the address") {
		t.Errorf("events: %v", told)
	}

	// A retraction that the archivist refused is an event too.
	now := time.Now()
	data, err := wire.Encode(wire.RefusalStatus{Incarnation: "two", ReportedAt: now, Changes: map[string]wire.RefusedChange{
		"LegalHold": {Count: 1, ID: "o/hub/camera/n/a", Asked: "Purged", By: "anna", Why: "the Instrument is under legal hold", At: now},
	}})
	if err == nil {
		err = g.put(wire.StatusBucket("hub"), wire.RefusalStatusKey("camera", wire.ArchivistWriter), data)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.sawEvent("camera", "Refuse", "LegalHold", "Warning")
}

// label marks a Secret as one with tokens of instruments.
func (w *world) label(s *corev1.Secret) {
	w.t.Helper()
	before := s.DeepCopy()
	s.Labels = map[string]string{accept.LabelTokens: "true"}
	if err := w.Patch(w.t.Context(), s, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}
