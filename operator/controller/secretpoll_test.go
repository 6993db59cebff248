// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/accept"
)

// crossing is the way to the API server, on which requests about Secrets are counted and may
// find no answer.
type crossing struct {
	http.RoundTripper
	// blocked, where set, says which requests wait until they are given up.
	blocked atomic.Pointer[func(secret string, r *http.Request) bool]
	waiting atomic.Int64

	mu sync.Mutex
	// looks are how often each Secret was asked for whether it has changed, reads how often
	// for what it holds.
	looks, reads map[string]int
}

func (w *world) cross() *crossing {
	c := &crossing{looks: map[string]int{}, reads: map[string]int{}}
	w.between = func(api http.RoundTripper) http.RoundTripper {
		c.RoundTripper = api
		return c
	}
	return c
}

// RoundTrip implements http.RoundTripper.
func (c *crossing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet || !strings.HasSuffix(path.Dir(r.URL.Path), "/secrets") {
		return c.RoundTripper.RoundTrip(r)
	}
	secret := path.Base(r.URL.Path)
	c.mu.Lock()
	if isLook(r) {
		c.looks[secret]++
	} else {
		c.reads[secret]++
	}
	c.mu.Unlock()
	if block := c.blocked.Load(); block != nil && (*block)(secret, r) {
		c.waiting.Add(1)
		defer c.waiting.Add(-1)
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return c.RoundTripper.RoundTrip(r)
}

// isLook says whether a request asks for no more than metadata.
func isLook(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata")
}

// looked counts how often Secrets of a kind were asked for whether they have changed.
func (c *crossing) looked(of func(secret string) bool) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for secret, count := range c.looks {
		if of(secret) {
			n += count
		}
	}
	return n
}

func (c *crossing) block(which func(secret string, r *http.Request) bool) { c.blocked.Store(&which) }

func tokenOf(name string) string { return "0123456789abcdef-" + name }

func opens(e wire.InstrumentEntry, token string) bool {
	return slices.ContainsFunc(e.Listeners[0].Tokens, func(h wire.TokenHash) bool { return h.Matches(token) })
}

func withTokens(secret string) bool { return strings.HasPrefix(secret, "token-") }

// applyTokens makes Instruments with a Secret of its own each, all at one port of HTTP, and
// waits until the registry has them.
func (w *world) applyTokens(n int) *gateway {
	w.t.Helper()
	first, _, ports := w.ports()
	w.secret("pool-tls", map[string]string{"tls.crt": "c", "tls.key": "k"})
	w.applyPool("pool", ports+", tls: {certificateSecretRef: {name: pool-tls}}")
	var made errgroup.Group
	made.SetLimit(8)
	for i := range n {
		made.Go(func() error {
			name := fmt.Sprintf("token-%04d", i)
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace, Labels: map[string]string{accept.LabelTokens: "true"}},
				StringData: map[string]string{"token": tokenOf(name)}}
			if err := w.Create(w.t.Context(), secret); err != nil {
				return err
			}
			w.apply(fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: %s}
spec: {siteRef: {name: hub}, type: AllSkyCamera, listeners: [{name: http, protocol: HTTP, port: %d, tokenSecretKeyRef: {name: %s, key: token}, http: {tlsMode: Server}}]}
`, name, first, name))
			return nil
		})
	}
	if err := made.Wait(); err != nil {
		w.t.Fatal(err)
	}
	g := w.gateway("pool", "pool-0")
	eventually(w.t, "the registry has all Instruments", func() error {
		if complete, err := g.complete(); err != nil || complete.Count != n {
			return errors.Join(err, fmt.Errorf("it has %d", complete.Count))
		}
		return nil
	})
	return g
}

// revoke takes a token out of a Secret, and waits until the registry knows none.
func (w *world) revoke(g *gateway, name string) {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}}
	if err := w.Patch(w.t.Context(), secret, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"token":null}}`))); err != nil {
		w.t.Fatal(err)
	}
	w.awaitRevoked(g, name)
}

func (w *world) awaitRevoked(g *gateway, name string) {
	w.t.Helper()
	eventually(w.t, "the token of "+name+" opens nothing", func() error {
		e, err := g.entry(name)
		if err != nil {
			return err
		}
		if len(e.Listeners) != 1 || len(e.Listeners[0].Tokens) == 0 {
			return fmt.Errorf("the listeners are %+v: whoever shows no token may send", e.Listeners)
		}
		if opens(e, tokenOf(name)) {
			return errors.New("the registry has it")
		}
		return nil
	})
}

const manyTokens = 1000

// TestTokensAreRevokedInTheNextRound: among a thousand Secrets with tokens, each that loses its token, or is deleted, is found with at most
// two requests for each, and read only by those who use it.
func TestTokensAreRevokedInTheNextRound(t *testing.T) {
	w := newWorld(t)
	c := w.cross()
	w.start()
	w.applySite("hub", "hub")
	g := w.applyTokens(manyTokens)
	eventually(t, "all are looked after", func() error {
		if n := c.looked(withTokens); n < manyTokens {
			return fmt.Errorf("%d of %d were looked at", n, manyTokens)
		}
		return nil
	})
	w.revokeSome(g, func(what string, revoke func()) {
		before := c.looked(withTokens)
		revoke()
		// The rest of this round, and the next one as far as it. The entry is seen a little later than it is written.
		if looks := c.looked(withTokens) - before; looks > 3*manyTokens {
			t.Errorf("%s: %d requests, with %d Secrets: it was passed over", what, looks, manyTokens)
		}
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for secret, n := range c.reads {
		if withTokens(secret) && n > 6 {
			t.Errorf("Secret %s was read %d times: what is not changed is read once", secret, n)
		}
	}
}

// revokeSome takes tokens out of some of many Secrets, and deletes others, one after the other, and
// prints how long each had been without effect.
func (w *world) revokeSome(g *gateway, around func(what string, revoke func())) {
	w.t.Helper()
	var took []time.Duration
	for i := range 10 {
		name, change := fmt.Sprintf("token-%04d", i*manyTokens/10+i), w.revoke
		if i%2 == 1 {
			change = w.removeToken
		}
		around(name, func() {
			began := time.Now()
			change(g, name)
			took = append(took, time.Since(began).Round(time.Millisecond))
		})
	}
	slices.Sort(took)
	w.t.Logf("%d Secrets with tokens, %d of them changed or deleted: in effect after %v in the middle, %v at most", manyTokens, len(took), took[len(took)/2], took[len(took)-1])
}

func (w *world) removeToken(g *gateway, name string) {
	w.t.Helper()
	w.remove(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}})
	w.awaitRevoked(g, name)
}

// TestOwnSecretsGoFirst: while the API server answers nothing about tokens, a Site and a pool are still woken by changes of their own
// Secrets.
func TestOwnSecretsGoFirst(t *testing.T) {
	w := newWorld(t)
	c := w.cross()
	w.start()
	w.applySite("hub", "hub")
	w.applyTokens(40)
	w.awaits("Site", "hub", "Ready", "True/Ready")
	c.block(func(secret string, _ *http.Request) bool { return withTokens(secret) })
	eventually(t, "those who ask for tokens wait", func() error {
		if c.waiting.Load() == 0 {
			return errors.New("nobody waits")
		}
		return nil
	})
	w.remove(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s3", Namespace: w.namespace}})
	w.awaits("Site", "hub", "ObjectStoreReachable", "False/SecretNotFound")
	w.remove(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pool-tls", Namespace: w.namespace}})
	w.awaits("IngestGateway", "pool", "Ready", "False/SecretNotFound")
}

// TestWatchedSecrets: with the right to watch, a revocation is found though requests whether a Secret has changed get no answer, except for
// the Secret that has.
func TestWatchedSecrets(t *testing.T) {
	w := newWorld(t)
	w.watchSecrets = true
	c := w.cross()
	w.start()
	w.mayWatchSecrets()
	w.applySite("hub", "hub")
	g := w.applyTokens(manyTokens)
	c.block(func(_ string, r *http.Request) bool { return isLook(r) && r.URL.Query().Get("resourceVersion") == "0" })
	w.revokeSome(g, func(_ string, revoke func()) { revoke() })
	w.remove(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s3", Namespace: w.namespace}})
	w.awaits("Site", "hub", "ObjectStoreReachable", "False/SecretNotFound")
}

// TestSecretsThatMayNotBeWatched: an operator that is to watch Secrets and may not finds
// revocations by asking.
func TestSecretsThatMayNotBeWatched(t *testing.T) {
	w := newWorld(t)
	w.watchSecrets = true
	w.start()
	w.applySite("hub", "hub")
	g := w.applyTokens(3)
	w.revoke(g, "token-0001")
}

// mayWatchSecrets gives the operator of a world the rights that operator/README.md lists for
// --watch-secrets.
func (w *world) mayWatchSecrets() {
	w.t.Helper()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		w.t.Fatal(err)
	}
	if !strings.Contains(string(readme), "`list` and `watch` of `secrets`") {
		w.t.Fatal("operator/README.md does not say which rights --watch-secrets needs")
	}
	user := "operator-" + w.namespace
	meta := metav1.ObjectMeta{Name: user + "-watches-secrets", Namespace: w.namespace}
	w.create(&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list", "watch"}}}})
	w.create(&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}})
}
