// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
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
  filter: {instrumentNames: [guarded-magnetometer]}
  delivery: {type: NATS}
`

// TestConsumersStayInTheirAccount: with the Secret of a FeedConsumer, bad requests for messages whose answers are to purge
// and delete the Site's streams change nothing. The same in the account of the streams purges one.
func TestConsumersStayInTheirAccount(t *testing.T) {
	l := theLab
	all, kept, before := l.canary(t)
	l.apply(t, intruderManifest)
	l.waitReady(t, "feed/guarded", "feedconsumer/intruder")
	js, streams, durable := l.consumesByNATS(t, "intruder")

	nc := js.Conn()
	for _, s := range streams {
		for _, target := range kept {
			for _, request := range []string{"$JS.API.STREAM.PURGE.", "$JS.API.STREAM.DELETE.", wire.ConsumerAPI + ".STREAM.PURGE.", wire.ConsumerAPI + ".STREAM.DELETE."} {
				if err := nc.PublishRequest(wire.ConsumerAPI+".CONSUMER.MSG.NEXT."+s+"."+durable, request+target, []byte("{")); err != nil {
					t.Fatal(err)
				}
			}
		}
		// This request comes after them: once it has been answered, so have they.
		if m, err := nc.Request(wire.ConsumerAPI+".CONSUMER.MSG.NEXT."+s+"."+durable, []byte("{"), time.Minute); err != nil || m.Header.Get("Status") != "400" {
			t.Fatalf("a bad request for messages of %s: %v, %v", s, m, err)
		}
	}
	untouched(t, all, before, publishing(t, all, "$JS.API.CONSUMER.MSG.NEXT."+streams[0]+"."+durable, "{"))
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
	untouched(t, all, before, publishing(t, all, "$JS.API.DIRECT.GET."+canary+".canary", ""))
}

// canary is a stream with one empty message, which an attack that works purges.
const canary = "CANARY"

// canary makes that stream. It returns a user who may do everything, the streams that attacks are directed at, and what they hold: all
// hold something, otherwise a purge would go unnoticed.
func (l *lab) canary(t *testing.T) (jetstream.JetStream, []string, map[string]*jetstream.StreamInfo) {
	t.Helper()
	all, err := jetstream.New(l.natsUser(t, "substorm-nats-account"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all.CreateStream(t.Context(), jetstream.StreamConfig{Name: canary, Subjects: []string{"canary"}, AllowDirect: true}); err != nil {
		t.Fatal(err)
	}
	deleteAfter(t, all, canary)
	if _, err := all.Publish(t.Context(), "canary", nil); err != nil {
		t.Fatal(err)
	}
	l.apply(t, instrumentUDP("guarded-magnetometer", 30134))
	l.waitReady(t, "instrument/guarded-magnetometer")
	kept := []string{canary, wire.ObservationStream("demo"), wire.NoticeStream("demo"), "KV_" + wire.LedgerBucket("demo"), "KV_" + wire.RegistryBucket("demo")}
	to, lines := join(l.nodeAddresses(t)[:1], 30134), writeLines(t, 10)
	var before map[string]*jetstream.StreamInfo
	eventually(t, func() error {
		// Again and again: a node may not forward a new port yet, and does not report what it drops.
		l.start(t, l.substorm, "send", "--udp", "--lines", "--rate", "500", "--to", to, lines).succeeds(t)
		before = held(t, all, kept...)
		for name, is := range before {
			if is.State.Msgs == 0 {
				return fmt.Errorf("%s holds nothing", name)
			}
		}
		return nil
	})
	return all, kept, before
}

// deleteAfter deletes a stream when the test is over.
func deleteAfter(t *testing.T, js jetstream.JetStream, stream string) {
	t.Cleanup(func() {
		if _, err := js.Conn().Request("$JS.API.STREAM.DELETE."+stream, nil, time.Minute); err != nil {
			t.Error(err)
		}
	})
}

// publishing is an attack by a client: a request at subject whose answer goes to a target.
func publishing(t *testing.T, js jetstream.JetStream, subject, payload string) func(target string) {
	return func(target string) {
		t.Helper()
		if err := js.Conn().PublishRequest(subject, target, []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
}

// untouched says that streams hold what they did, and that the same attack works where no boundary is: with all rights
// in an account it purges the canary.
func untouched(t *testing.T, all jetstream.JetStream, before map[string]*jetstream.StreamInfo, attack func(target string)) {
	t.Helper()
	if held(t, all, canary)[canary].State.Msgs == 0 {
		t.Error("the attack purges a stream")
	}
	attack("$JS.API.STREAM.PURGE." + canary)
	purged(t, all)
	for name, was := range before { // the attack came before that, and has had its effect
		is := held(t, all, name)[name]
		if !is.Created.Equal(was.Created) {
			t.Errorf("%s has been deleted and made anew", name)
		}
		if name != canary && is.State.Msgs < was.State.Msgs {
			t.Errorf("%s held %d messages and holds %d", name, was.State.Msgs, is.State.Msgs)
		}
	}
}

// purged waits until the canary is empty.
func purged(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	eventually(t, func() error {
		if held(t, js, canary)[canary].State.Msgs > 0 {
			return errors.New("the canary is not purged yet")
		}
		return nil
	})
}

// held returns what streams hold; all of them exist.
func held(t testing.TB, js jetstream.JetStream, streams ...string) map[string]*jetstream.StreamInfo {
	t.Helper()
	all := map[string]*jetstream.StreamInfo{}
	for _, name := range streams {
		s, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatalf("stream %s: %v", name, err)
		}
		all[name] = s.CachedInfo()
	}
	return all
}

// natsUser connects as a user who may do everything in the account whose signing key a Secret has.
func (l *lab) natsUser(t testing.TB, secret string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("tls://"+natsName+":4222", nats.UserCredentialBytes(l.natsCreds(t, secret)),
		nats.Secure(l.natsTLS(t)), nats.SetCustomDialer(l.natsPods(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// natsName is in the certificates of the NATS servers.
const natsName = "substorm-nats." + namespace + ".svc"

// natsTLS has a client believe them.
func (l *lab) natsTLS(t testing.TB) *tls.Config {
	t.Helper()
	var client corev1.Secret
	l.getJSON(t, &client, "secret", "substorm-tls-client")
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(client.Data["ca.crt"]) {
		t.Fatal("Secret substorm-tls-client has no ca.crt")
	}
	return &tls.Config{RootCAs: authority, MinVersion: tls.VersionTLS12, ServerName: natsName}
}

// natsCreds are the credentials of natsUser.
func (l *lab) natsCreds(t testing.TB, secret string) []byte {
	t.Helper()
	var account corev1.Secret
	l.getJSON(t, &account, "secret", secret)
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	id, err := user.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
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
	creds, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		t.Fatal(err)
	}
	return creds
}
