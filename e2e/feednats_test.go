// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"

	"github.com/substorm/substorm/internal/wire"
)

const busManifest = `
apiVersion: substorm.dev/v1alpha1
kind: Feed
metadata: {name: bus}
spec:
  siteRef: {name: demo}
  messageTypes: [Telemetry]
---
apiVersion: substorm.dev/v1alpha1
kind: FeedConsumer
metadata: {name: model}
spec:
  feedRef: {name: bus}
  filter: {instrumentNames: [bus-magnetometer]}
  delivery: {type: NATS}
`

// TestFeedByNATS consumes from the quickstart's servers with any NATS client that
// has the FeedConsumer's Secret, and nothing else.
func TestFeedByNATS(t *testing.T) {
	l := theLab
	l.apply(t, instrumentUDP("bus-magnetometer", 30132))
	l.apply(t, busManifest)
	l.waitReady(t, "instrument/bus-magnetometer", "feed/bus", "feedconsumer/model", "site/demo")
	js, streams, durable := l.consumesByNATS(t, "model")
	const datagrams = 500
	to := join(l.nodeAddresses(t)[:1], 30132)
	l.forwards(t, to, "bus-magnetometer")
	sender := l.start(t, l.substorm, "send", "--udp", "--lines", "--rate", "500", "--to", to, writeLines(t, datagrams))
	times := map[string]int{}
	for _, name := range streams {
		c, err := js.Consumer(t.Context(), name, durable)
		if err != nil {
			t.Fatalf("durable %s of %s: %v", durable, name, err)
		}
		if name != wire.ObservationStream("demo") {
			continue
		}
		eventually(t, func() error { return take(c, times, datagrams) })
	}
	sender.succeeds(t)
	for payload, n := range times {
		if n != 1 {
			t.Errorf("datagram %q came %d times", payload, n)
		}
	}
	eventually(t, func() error { return l.keepingUp(t, "model", "Flowing") })
}

// consumesByNATS connects with what a FeedConsumer's Secret holds. Names of Services
// mean something inside the cluster alone, so the server's pod is dialed instead.
func (l *lab) consumesByNATS(t testing.TB, consumer string) (js jetstream.JetStream, streams []string, durable string) {
	t.Helper()
	var secret corev1.Secret
	l.getJSON(t, &secret, "secret", consumer+"-consumer")
	said := func(key string) string { return string(secret.Data[key]) }
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(secret.Data["ca.crt"]) {
		t.Fatal("the Secret has no ca.crt")
	}
	nc, err := nats.Connect(said("nats-url"), nats.UserCredentialBytes(secret.Data["user.creds"]), nats.CustomInboxPrefix(said("inbox-prefix")),
		nats.Secure(&tls.Config{RootCAs: authority, MinVersion: tls.VersionTLS12}), nats.SetCustomDialer(l.natsPods(t)))
	if err != nil {
		t.Fatalf("FeedConsumer %s connects to %s: %v", consumer, said("nats-url"), err)
	}
	t.Cleanup(nc.Close)
	if js, err = jetstream.NewWithAPIPrefix(nc, said("api-prefix")); err != nil {
		t.Fatal(err)
	}
	return js, strings.Split(said("streams"), ","), said("durable")
}

// natsPods dials the first NATS pod, whichever host is asked for.
func (l *lab) natsPods(t testing.TB) dialer {
	t.Helper()
	var pods corev1.PodList
	text := l.kubectl(t, "get", "pods", "-l", "app.kubernetes.io/component=nats", "-o", "json")
	if err := json.Unmarshal([]byte(text), &pods); err != nil || len(pods.Items) == 0 {
		t.Fatalf("no pods of NATS: %v", err)
	}
	return dialer(pods.Items[0].Status.PodIP)
}

type dialer string

func (d dialer) Dial(network, address string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return net.DialTimeout(network, net.JoinHostPort(string(d), port), 5*time.Second)
}

// SkipTLSHandshake is false: nats.go does it, with the name that was asked for.
func (dialer) SkipTLSHandshake() bool { return false }

// take acknowledges what waits, counts datagrams, and is nil once there are so many.
func take(c jetstream.Consumer, times map[string]int, datagrams int) error {
	batch, err := c.Fetch(100, jetstream.FetchMaxWait(time.Second))
	if err != nil {
		return err
	}
	for m := range batch.Messages() {
		for d, err := range wire.Datagrams(m.Data()) {
			if err != nil {
				return err
			}
			if string(d.Payload) != probeLine {
				times[string(d.Payload)]++
			}
		}
		if err := m.Ack(); err != nil {
			return err
		}
	}
	if len(times) < datagrams {
		return errors.Join(fmt.Errorf("%d of %d datagrams came", len(times), datagrams), batch.Error())
	}
	return nil
}
