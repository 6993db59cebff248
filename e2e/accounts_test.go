// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	corev1 "k8s.io/api/core/v1"

	"github.com/substorm/substorm/internal/wire"
)

const intruderManifest = `
apiVersion: substorm.dev/v1alpha1
kind: Feed
metadata: {name: guarded}
spec:
  siteRef: {name: demo}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedConsumer
metadata: {name: intruder}
spec:
  feedRef: {name: guarded}
  filter: {instruments: [guarded-magnetometer]}
  delivery: {type: NATS}
`

// TestConsumersStayInTheirAccount: with the Secret of a FeedConsumer, bad requests for messages whose answers are to purge
// and delete the Site's streams change nothing. The same in the account of the streams purges one.
func TestConsumersStayInTheirAccount(t *testing.T) {
	l := theLab
	l.apply(t, instrumentUDP("guarded-magnetometer", 30134))
	l.apply(t, intruderManifest)
	l.waitReady(t, "instrument/guarded-magnetometer", "feed/guarded", "feedconsumer/intruder")
	js, streams, durable := l.consumesByNATS(t, "intruder")
	all, kept, before := l.canary(t)

	nc := js.Conn()
	for _, s := range streams {
		for _, target := range kept {
			for _, request := range []string{"$JS.API.STREAM.PURGE.", "$JS.API.STREAM.DELETE.", wire.ConsumerAPI + ".STREAM.PURGE.", wire.ConsumerAPI + ".STREAM.DELETE."} {
				if err := nc.PublishRequest(wire.ConsumerAPI+".CONSUMER.MSG.NEXT."+s+"."+durable, request+target, []byte("{")); err != nil {
					t.Fatal(err)
				}
			}
		}
		// What comes after it has been answered: so have they.
		if m, err := nc.Request(wire.ConsumerAPI+".CONSUMER.MSG.NEXT."+s+"."+durable, []byte("{"), time.Minute); err != nil || m.Header.Get("Status") != "400" {
			t.Fatalf("a bad request for messages of %s: %v, %v", s, m, err)
		}
	}
	untouched(t, all, before, "$JS.API.CONSUMER.MSG.NEXT."+streams[0]+"."+durable)
}

// TestCommandsStayInTheirAccount: with the key of the account of commands, so with all that any command may do and more,
// answers that are directed at requests to purge and delete change nothing. The same in the account of the streams purges
// one.
func TestCommandsStayInTheirAccount(t *testing.T) {
	l := theLab
	all, kept, before := l.canary(t)
	nc := l.natsUser(t, "substorm-nats-commands")
	get := wire.CommandAPI + ".DIRECT.GET." + canary + ".canary"
	for _, ask := range []string{get, wire.CommandAPI + ".DIRECT.GET." + canary, wire.CommandAPI + ".STREAM.INFO." + canary, wire.RequestSubject("demo", "guarded")} {
		for _, target := range kept {
			for _, request := range []string{"$JS.API.STREAM.PURGE.", "$JS.API.STREAM.DELETE.", wire.CommandAPI + ".STREAM.PURGE.", wire.CommandAPI + ".STREAM.DELETE."} {
				if err := nc.PublishRequest(ask, request+target, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if m, err := nc.Request(get, nil, time.Minute); err != nil || m.Header.Get(jetstream.StreamHeader) != canary { // so they have been answered, too
		t.Fatalf("a message of %s: %v, %v", canary, m, err)
	}
	untouched(t, all, before, "$JS.API.DIRECT.GET."+canary+".canary")
}

// canary is a stream with one empty message, which an attack that works purges.
const canary = "CANARY"

// canary makes that stream. It returns a user who may do everything, the streams that attacks are directed at, and what
// they hold.
func (l *lab) canary(t *testing.T) (jetstream.JetStream, []string, map[string]uint64) {
	t.Helper()
	all, err := jetstream.New(l.natsUser(t, "substorm-nats-account"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all.CreateStream(t.Context(), jetstream.StreamConfig{Name: canary, Subjects: []string{"canary"}, AllowDirect: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := all.Conn().Request("$JS.API.STREAM.DELETE."+canary, nil, time.Minute); err != nil {
			t.Error(err)
		}
	})
	if _, err := all.Publish(t.Context(), "canary", nil); err != nil {
		t.Fatal(err)
	}
	kept := []string{canary, wire.ObservationStream("demo"), wire.NoticeStream("demo"), "KV_" + wire.LedgerBucket("demo"), "KV_" + wire.RegistryBucket("demo")}
	return all, kept, messages(t, all, kept)
}

// untouched says that streams hold what they did, and that the attack works within the account of the streams, where a
// request at subject is answered: after it the canary is purged.
func untouched(t *testing.T, all jetstream.JetStream, before map[string]uint64, subject string) {
	t.Helper()
	if messages(t, all, []string{canary})[canary] == 0 {
		t.Error("the attack purges a stream")
	}
	payload := []byte("{")
	if strings.Contains(subject, ".DIRECT.GET.") {
		payload = nil
	}
	if err := all.Conn().PublishRequest(subject, "$JS.API.STREAM.PURGE."+canary, payload); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error {
		if messages(t, all, []string{canary})[canary] > 0 {
			return errors.New("the canary is not purged yet")
		}
		return nil
	})
	for name, was := range before { // the attack came before that, and has had its effect
		if is := messages(t, all, []string{name})[name]; name != canary && was > 0 && is == 0 {
			t.Errorf("%s held %d messages and is empty", name, was)
		}
	}
}

// messages returns how many messages streams hold; all of them exist.
func messages(t testing.TB, js jetstream.JetStream, streams []string) map[string]uint64 {
	t.Helper()
	held := map[string]uint64{}
	for _, name := range streams {
		s, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatalf("stream %s: %v", name, err)
		}
		held[name] = s.CachedInfo().State.Msgs
	}
	return held
}

// natsUser connects as a user who may do everything in the account whose signing key a Secret has.
func (l *lab) natsUser(t testing.TB, secret string) *nats.Conn {
	t.Helper()
	var account, client corev1.Secret
	l.getJSON(t, &account, "secret", secret)
	l.getJSON(t, &client, "secret", "substorm-tls-client")
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	id, err := user.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := nkeys.FromSeed(account.Data["account.seed"])
	if err != nil {
		t.Fatal(err)
	}
	claims := jwt.NewUserClaims(id)
	claims.IssuerAccount = strings.TrimSpace(string(account.Data["account.id"]))
	token, err := claims.Encode(signer)
	if err != nil {
		t.Fatal(err)
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(client.Data["ca.crt"]) {
		t.Fatal("Secret substorm-tls-client has no ca.crt")
	}
	nc, err := nats.Connect("tls://substorm-nats."+namespace+".svc:4222", nats.UserJWT(func() (string, error) { return token, nil }, user.Sign),
		nats.Secure(&tls.Config{RootCAs: authority, MinVersion: tls.VersionTLS12}), nats.SetCustomDialer(l.natsPods(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}
