// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/workload"
)

// holder is a resource that the operator issues NATS credentials for.
type holder struct {
	kind, name, secret string
	credentials        func(*world) *v1alpha1.CredentialsStatus
}

var holders = []holder{
	{"IngestGateway", "pool", "pool-jetstream", func(w *world) *v1alpha1.CredentialsStatus {
		var s v1alpha1.IngestGatewayStatus
		w.status("IngestGateway", "pool", &s)
		return s.Credentials
	}},
	{"FeedServer", "hub", "hub-feed-server-jetstream", func(w *world) *v1alpha1.CredentialsStatus {
		var s v1alpha1.FeedServerStatus
		w.status("FeedServer", "hub", &s)
		return s.Credentials
	}},
	{"FeedConsumer", "client", "client-consumer", func(w *world) *v1alpha1.CredentialsStatus {
		var s v1alpha1.FeedConsumerStatus
		w.status("FeedConsumer", "client", &s)
		return s.Credentials
	}},
	{"Site", "hub", "hub-archivist-jetstream", func(w *world) *v1alpha1.CredentialsStatus {
		var s v1alpha1.SiteStatus
		w.status("Site", "hub", &s)
		if s.Archivist == nil {
			return nil
		}
		return s.Archivist.Credentials
	}},
}

// firstExpiry is when the first of a resource's credentials expire, which its metric says: a Site has two.
func (w *world) firstExpiry(h holder) int64 {
	w.t.Helper()
	first := w.claims(h.secret).Expires
	for _, other := range holders {
		if other.kind == h.kind && other.name == h.name {
			first = min(first, w.claims(other.secret).Expires)
		}
	}
	return first
}

// TestCredentialsAreRenewedAndRotated: NATS credentials expire, are renewed for the same user long before that, and are replaced by another
// user's on request. Status and metrics show until when they are valid.
func TestCredentialsAreRenewedAndRotated(t *testing.T) {
	w := newFeedWorld(t)
	w.applyPool("pool", ", service: {type: ClusterIP}")
	w.applyFeed("all", "")
	w.applyConsumer("client", "all", "NATS", "")
	for _, h := range holders {
		first := w.awaitCredentials(h, "credentials that expire", func(c *v1alpha1.CredentialsStatus) bool { return c.ExpirationTime != nil })
		claims := w.claims(h.secret)
		if claims.Expires != first.ExpirationTime.Unix() || claims.Subject != first.User {
			t.Errorf("%s: the status says user %s until %v, the token user %s until %d", h.kind, first.User, first.ExpirationTime, claims.Subject, claims.Expires)
		}
		if lifetime := time.Unix(claims.Expires, 0).Sub(time.Unix(claims.IssuedAt, 0)); lifetime < bus.CredentialsLifetime-time.Minute || lifetime > bus.CredentialsLifetime+time.Minute {
			t.Errorf("%s: credentials are valid for %v", h.kind, lifetime)
		}
		if at := first.ExpirationTime.Add(-bus.CredentialsLifetime * 2 / 3); !first.RenewalTime.Time.Equal(at) {
			t.Errorf("%s: renewed at %v, not at %v", h.kind, first.RenewalTime, at)
		}

		// Half of their lifetime is over.
		w.age(h.secret, time.Now().Add(bus.CredentialsLifetime/2))
		w.annotate(h, "example.org/touched", "now")
		renewed := w.awaitCredentials(h, "renewed credentials", func(c *v1alpha1.CredentialsStatus) bool {
			return c.ExpirationTime != nil && c.ExpirationTime.After(time.Now().Add(bus.CredentialsLifetime-time.Hour)) && w.claims(h.secret).Expires == c.ExpirationTime.Unix()
		})
		if renewed.User != first.User {
			t.Errorf("%s: renewed for another user", h.kind)
		}

		w.annotate(h, v1alpha1.AnnotationRotateCredentials, first.User)
		rotated := w.awaitCredentials(h, "credentials of another user", func(c *v1alpha1.CredentialsStatus) bool { return c.User != first.User })
		if is := w.claims(h.secret).Subject; is != rotated.User {
			t.Errorf("%s: the Secret has the user %s, the status %s", h.kind, is, rotated.User)
		}
		eventually(t, "the metric of "+h.kind, func() error {
			if at, want := w.credentialsExpiry(h), w.firstExpiry(h); at != float64(want) {
				return fmt.Errorf("it is %v, not %d", at, want)
			}
			return nil
		})
	}
	// Rotated credentials open what the earlier ones opened.
	w.natsClient("client")
	w.feedServer("feed-0")
}

// TestCredentialsOfWhatIsNotAccepted: an invalid edit, or a conflict, ends no program that runs: issued credentials stay, are renewed as
// they are, and status and metrics still show until when they are valid.
func TestCredentialsOfWhatIsNotAccepted(t *testing.T) {
	w := newWorld(t)
	_, _, ports := w.ports()
	w.apply(`
apiVersion: substorm.dev/v1alpha1
kind: IngestGateway
metadata: {name: elder}
spec: {siteRef: {name: none}, service: {type: NodePort}` + ports + `}
`)
	w.startFeedWorld()
	w.applyFeed("all", "")
	w.applyConsumer("client", "all", "NATS", "")
	for _, h := range holders {
		w.awaitCredentials(h, "credentials", func(c *v1alpha1.CredentialsStatus) bool { return c.ExpirationTime != nil })
	}

	spoil := map[string]func(){
		"IngestGateway": func() { w.applyPool("pool", ", service: {type: NodePort}"+ports) },
		"FeedConsumer":  func() { w.remove(w.feed("all")) },
		"Site":          func() { w.giveAway("hub") },
	}
	reasons := map[string]string{"IngestGateway": "False/Conflict", "FeedConsumer": "False/FeedNotFound", "Site": "False/Conflict"}
	for _, h := range []holder{holders[0], holders[2], holders[3]} {
		spoil[h.kind]()
		w.awaits(h.kind, h.name, "Accepted", reasons[h.kind])
		w.renewsWhatIsThere(h)
	}
	w.remove(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: workload.PeersSecret("pool")}})
	w.awaitSecret(workload.PeersSecret("pool"), corev1.TLSCertKey)
	// The Site is not accepted, and so its pools, FeedServers and consumers are not.
	w.awaits("FeedServer", "hub", "Accepted", "False/SiteNotReady")
	for _, h := range holders {
		w.renewsWhatIsThere(h)
	}
	w.stop()
	w.start()
	for _, h := range holders {
		w.hasExpiry(h, time.Unix(w.claims(h.secret).Expires, 0))
	}
}

// TestForgedCredentialsAreNotSigned: a token that was written into the Secret of a resource that is not accepted is not signed again if no
// key of the Site has signed it, or if it is for another user, whatever account it names.
func TestForgedCredentialsAreNotSigned(t *testing.T) {
	w := newFeedWorld(t)
	own, err := nkeys.FromSeed([]byte(w.nats.AccountSeed))
	other, err2 := nkeys.CreateAccount()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	t.Run("signed by another key", func(t *testing.T) {
		w.forge(t, "mallory", bus.ConsumerUserName(&v1alpha1.FeedConsumer{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "mallory"}}), other)
	})
	t.Run("signed for another user", func(t *testing.T) { w.forge(t, "trudy", bus.GatewayUserName(w.namespace, "pool"), own) })
}

// forge writes a token into the Secret of a FeedConsumer that is not accepted, and fails where the operator signs it.
func (w *world) forge(t *testing.T, name, userName string, signer nkeys.KeyPair) {
	t.Helper()
	h := holder{"FeedConsumer", name, name + "-consumer", func(w *world) *v1alpha1.CredentialsStatus {
		var s v1alpha1.FeedConsumerStatus
		w.status("FeedConsumer", name, &s)
		return s.Credentials
	}}
	w.applyConsumer(h.name, "none", "NATS", "")
	consumer := w.object(h.kind, h.name)
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(consumer), consumer); err != nil {
		t.Fatal(err)
	}
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	id, err := user.PublicKey()
	claims := jwt.NewUserClaims(id)
	claims.Name = userName
	claims.IssuerAccount = w.nats.AccountID
	claims.Pub.Allow.Add(">")
	claims.Sub.Allow.Add(">")
	token, err2 := claims.Encode(signer)
	seed, err3 := user.Seed()
	forged, err4 := jwt.FormatUserConfig(token, seed)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	w.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: h.secret, OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(consumer, v1alpha1.GroupVersion.WithKind(h.kind)),
		}},
		Data: map[string][]byte{workload.KeyUserCreds: forged},
	})
	w.annotate(h, "example.org/touched", "now")
	// The status names the user once the operator has dealt with the Secret.
	w.awaitCredentials(h, "the user of the Secret", func(c *v1alpha1.CredentialsStatus) bool { return c.User == id })
	if is := w.claims(h.secret); !bytes.Equal(w.awaitSecret(h.secret, workload.KeyUserCreds).Data[workload.KeyUserCreds], forged) {
		t.Errorf("%s signed for account %s that its user may publish %v", is.Issuer, is.IssuerAccount, is.Pub.Allow)
	}
}

// renewsWhatIsThere makes half of the lifetime of credentials pass, and sees them renewed for the same user, with the same
// permissions.
func (w *world) renewsWhatIsThere(h holder) {
	w.t.Helper()
	before := w.claims(h.secret)
	w.hasExpiry(h, time.Unix(before.Expires, 0))
	data := w.awaitSecret(h.secret, workload.KeyUserCreds).Data
	w.age(h.secret, time.Now().Add(bus.CredentialsLifetime/2))
	w.annotate(h, "example.org/touched", fmt.Sprint(time.Now().UnixNano()))
	eventually(w.t, h.kind+": renewed credentials", func() error {
		if left := time.Until(time.Unix(w.claims(h.secret).Expires, 0)); left < bus.CredentialsLifetime-time.Hour {
			return fmt.Errorf("they are valid for %v", left)
		}
		return nil
	})
	after := w.claims(h.secret)
	if after.Subject != before.Subject || !reflect.DeepEqual(after.Permissions, before.Permissions) || !reflect.DeepEqual(after.AllowedConnectionTypes, before.AllowedConnectionTypes) {
		w.t.Errorf("%s: the renewed credentials are those of %+v, before it was %+v", h.kind, after, before)
	}
	is := w.awaitSecret(h.secret, workload.KeyUserCreds)
	for key, value := range data {
		if key != workload.KeyUserCreds && !bytes.Equal(is.Data[key], value) {
			w.t.Errorf("%s: %s of the Secret is %q, before it was %q", h.kind, key, is.Data[key], value)
		}
	}
	if owner := metav1.GetControllerOf(is); owner == nil || owner.Kind != h.kind || is.Annotations[workload.AnnotationPermissions] == "" {
		w.t.Errorf("%s: the Secret is now owned by %+v, with the annotations %v", h.kind, owner, is.Annotations)
	}
	w.hasExpiry(h, time.Unix(after.Expires, 0))
}

// giveAway writes another Site's marker into the bucket.
func (w *world) giveAway(code string) {
	w.t.Helper()
	m := w.marker(code)
	m.UID, m.Namespace, m.Cluster = "u-1", "north", "elsewhere"
	data, err := wire.Encode(m)
	if err == nil {
		err = w.minio.Bucket(w.t, w.bucket).Put(w.t.Context(), wire.SiteMarkerKey(code), bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// hasExpiry waits until status and metric say when credentials expire.
func (w *world) hasExpiry(h holder, at time.Time) {
	w.t.Helper()
	w.awaitCredentials(h, "the date in the status", func(c *v1alpha1.CredentialsStatus) bool {
		return c.ExpirationTime != nil && c.ExpirationTime.Unix() == at.Unix()
	})
	eventually(w.t, "the metric of "+h.kind, func() error {
		if says, want := w.credentialsExpiry(h), w.firstExpiry(h); says != float64(want) {
			return fmt.Errorf("it is %v, not %d", says, want)
		}
		return nil
	})
}

func (w *world) awaitCredentials(h holder, what string, as func(*v1alpha1.CredentialsStatus) bool) *v1alpha1.CredentialsStatus {
	w.t.Helper()
	var found *v1alpha1.CredentialsStatus
	eventually(w.t, h.kind+": "+what, func() error {
		if found = h.credentials(w); found == nil || !as(found) {
			return fmt.Errorf("status.credentials is %+v", found)
		}
		return nil
	})
	return found
}

// claims are those of the token in a Secret.
func (w *world) claims(secret string) *jwt.UserClaims {
	w.t.Helper()
	token, err := jwt.ParseDecoratedJWT(w.awaitSecret(secret, workload.KeyUserCreds).Data[workload.KeyUserCreds])
	if err != nil {
		w.t.Fatal(err)
	}
	claims, err := jwt.DecodeUserClaims(token)
	if err != nil {
		w.t.Fatal(err)
	}
	return claims
}

// age gives the credentials in a Secret another end.
func (w *world) age(name string, expires time.Time) {
	w.t.Helper()
	secret := w.awaitSecret(name, workload.KeyUserCreds)
	seeds := map[string]string{w.nats.AccountID: w.nats.AccountSeed, w.nats.ConsumersID: w.nats.ConsumersSeed}
	signer, err := nkeys.FromSeed([]byte(seeds[cmp.Or(w.claims(name).IssuerAccount, w.claims(name).Issuer)]))
	user, err2 := jwt.ParseDecoratedUserNKey(secret.Data[workload.KeyUserCreds])
	if err := errors.Join(err, err2); err != nil {
		w.t.Fatal(err)
	}
	claims := w.claims(name)
	claims.Expires = expires.Unix()
	token, err := claims.Encode(signer)
	seed, err2 := user.Seed()
	if err := errors.Join(err, err2); err != nil {
		w.t.Fatal(err)
	}
	creds, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		w.t.Fatal(err)
	}
	before := secret.DeepCopy()
	secret.Data[workload.KeyUserCreds] = creds
	if err := w.Patch(w.t.Context(), secret, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) annotate(h holder, key, value string) {
	w.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
	if err := w.Patch(w.t.Context(), w.object(h.kind, h.name), client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		w.t.Fatal(err)
	}
}

// credentialsExpiry returns the metric's value; 0 if there is none.
func (w *world) credentialsExpiry(h holder) float64 {
	w.t.Helper()
	families, err := prometheus.Gatherer(w.metrics).Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "substorm_credentials_expiry_timestamp_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["namespace"] == w.namespace && labels["kind"] == h.kind && labels["name"] == h.name {
				return m.GetGauge().GetValue()
			}
		}
	}
	return 0
}
