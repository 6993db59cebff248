// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/workload"
)

// TestCredentialsFitAConnectLine: servers end a connection whose CONNECT is
// longer than 4096 bytes, and it holds the token beside some 500 bytes more.
func TestCredentialsFitAConnectLine(t *testing.T) {
	const limit, beside = 4096, 500
	site := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("s", 63)}}
	site.Spec.Code = strings.Repeat("c", 16)
	feed := &v1alpha1.Feed{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("f", 63)}}
	feed.Spec.Stream = &v1alpha1.FeedStream{}
	consumer := &v1alpha1.FeedConsumer{ObjectMeta: metav1.ObjectMeta{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("c", 63)}}
	consumer.Spec.Flow.Mode = v1alpha1.FlowAll
	pushes := &v1alpha1.MirrorPartner{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("m", 40)}}
	pulls := pushes.DeepCopy()
	pulls.Spec.Direction, pulls.Spec.HTTPS = v1alpha1.MirrorPull, &v1alpha1.MirrorHTTPS{Origin: strings.Repeat("o", 16)}
	for _, user := range []bus.JetStreamUser{bus.GatewayUser(site, strings.Repeat("p", 40)), bus.ArchivistUser(site), bus.OperatorUser(site), bus.FeedServerUser(site, strings.Repeat("f", 40)),
		bus.MirrorUser(site, pushes), bus.MirrorUser(site, pulls),
		bus.ConsumerUser(site, feed, consumer, accept.ConsumerVerdict{Notices: true, Telemetry: true},
			wire.ConsumerDurable(consumer.Name, "0123456789"))} {
		creds, _, err := signingKey(t).credentials(user, nil, "", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		token, err := jwt.ParseDecoratedJWT(creds)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%.20s…: a token of %d bytes", user.Name, len(token))
		if len(token)+beside > limit {
			t.Errorf("the token of %s has %d bytes", user.Name, len(token))
		}
	}
}

// TestGatewaysReportOfGateways: the credentials of a gateway, whose pods any client may send to, do not allow the reports of feed servers,
// runs of mirrors and archivists: the operator derives pods and conditions from those.
func TestGatewaysReportOfGateways(t *testing.T) {
	site := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "field", Name: "hub"}}
	site.Spec.Code = "hub"
	allowed := bus.GatewayUser(site, "north").Publish
	for key, may := range map[string]bool{
		wire.GatewayStatusKey("north-0"): true, wire.GatewayStatusKey(wire.VolumeReporter("north-0", "1a2b")): true, wire.InstrumentStatusKey("cam", "north-0"): true,
		wire.RefusalStatusKey("cam", "north-0"): true, wire.SenderStatusKey("cam", "north-0"): true, wire.FailedPacksKey("north-0"): true, wire.DamageKey("cam", "id"): true,
		wire.FeedServerStatusKey("public-1"): false, wire.ConsumerStatusKey("display", "public-1"): false, wire.MirrorStatusKey("uni", "run"): false,
		wire.ForwardStatusKey("cam"): false, wire.LedgerStatusKey: false, wire.ExpiryStatusKey: false, wire.ScrubStatusKey: false, wire.SurgeStatusKey: false,
	} {
		subject := jwt.Subject("$KV." + wire.StatusBucket("hub") + "." + key)
		if is := slices.ContainsFunc(allowed, func(s string) bool { return subject.IsContainedIn(jwt.Subject(s)) }); is != may {
			t.Errorf("a gateway may write %s: %v", subject, is)
		}
	}
}

func TestMintWithASigningKey(t *testing.T) {
	key := signingKey(t)
	creds, err := key.mint(bus.JetStreamUser{Name: "u", Publish: []string{"a"}, Subscribe: []string{"b.>"}})
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.ParseDecoratedJWT(creds)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := jwt.DecodeUserClaims(token)
	if err != nil {
		t.Fatal(err)
	}
	if claims.Issuer != key.issuer || claims.IssuerAccount != key.account || claims.Expires != 0 {
		t.Errorf("issuer %s of account %s, expiry %d", claims.Issuer, claims.IssuerAccount, claims.Expires)
	}
	if !claims.Pub.Allow.Contains("a") || !claims.Sub.Allow.Contains("b.>") || len(claims.Pub.Allow)+len(claims.Sub.Allow) != 2 {
		t.Errorf("permissions %+v", claims.Permissions)
	}
}

func TestAccountKeysThatAreNone(t *testing.T) {
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	userSeed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	good := signingKey(t)
	goodSeed, err := good.pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ seed, id, names string }{
		"no seed":           {"nonsense", good.account, workload.KeyAccountSeed},
		"a user's seed":     {string(userSeed), good.account, workload.KeyAccountSeed},
		"no account":        {string(goodSeed), "nonsense", workload.KeyAccountID},
		"a seed for the id": {string(goodSeed), string(goodSeed), workload.KeyAccountID},
	} {
		_, err := readAccountKey(&corev1.Secret{Data: map[string][]byte{workload.KeyAccountSeed: []byte(c.seed), workload.KeyAccountID: []byte(c.id)}})
		if err == nil || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && (strings.Contains(err.Error(), c.seed)) {
			t.Errorf("%s: the error tells the seed", name)
		}
	}
}

// signingKey is a key of an account that is not the account's own.
func signingKey(t *testing.T) accountKey {
	t.Helper()
	account, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := signer.Seed()
	if err != nil {
		t.Fatal(err)
	}
	id, err := account.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := readAccountKey(&corev1.Secret{Data: map[string][]byte{workload.KeyAccountSeed: seed, workload.KeyAccountID: []byte(id + "\n")}})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestConsumersNeedAnAccountOfTheirOwn: the key of the account of the streams issues no consumer's user, in whichever Secret the key is
// stored.
func TestConsumersNeedAnAccountOfTheirOwn(t *testing.T) {
	secret := func() *corev1.Secret {
		key := signingKey(t)
		seed, err := key.pair.Seed()
		if err != nil {
			t.Fatal(err)
		}
		return &corev1.Secret{Data: map[string][]byte{workload.KeyAccountSeed: seed, workload.KeyAccountID: []byte(key.account)}}
	}
	site := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "hub"}}
	site.Spec.JetStream.AccountKeySecretRef = &v1alpha1.LocalReference{Name: "account"}
	site.Spec.JetStream.ConsumerAccountKeySecretRef = &v1alpha1.LocalReference{Name: "consumers"}
	streams, own := secret(), secret()
	signer := secret() // another signing key of the account of the streams
	signer.Data[workload.KeyAccountID] = streams.Data[workload.KeyAccountID]
	for name, c := range map[string]struct {
		consumers *corev1.Secret
		says      string
	}{
		"an account of their own":                {own, ""},
		"no Secret":                              {nil, "does not exist"},
		"the account of the streams":             {streams, "one of their own"},
		"the account of the streams, other keys": {signer, "one of their own"},
	} {
		key, problem := consumerAccountKey(site, workload.Secrets{"account": streams, "consumers": c.consumers})
		switch {
		case c.says == "" && (problem != nil || key.account != string(own.Data[workload.KeyAccountID])):
			t.Errorf("%s: %v", name, problem)
		case c.says != "" && (problem == nil || !strings.Contains(problem.Message, c.says) || !strings.Contains(problem.Message, "consumerAccountKeySecretRef")):
			t.Errorf("%s: %v", name, problem)
		}
	}
}
