// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// outpost is a leaf of the Site, whose owner is the attacker.
	outpost = "outpost"
	// guard is a consumer of the canary.
	guard = "guard"
	// bait is a stream of the account LEAVES that flow control purges.
	bait = "BAIT"
)

// TestLeafStaysInItsAccount: with the Secret of a leaf, by a link that speaks the servers' protocol itself, neither bad
// requests for messages nor flow control whose answers are to purge and delete the Site's streams change them. The same
// with all rights purges one.
func TestLeafStaysInItsAccount(t *testing.T) {
	l := theLab
	all, kept, before := l.canary(t)
	if _, err := all.CreateConsumer(t.Context(), canary, jetstream.ConsumerConfig{Durable: guard, AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	leaves, err := jetstream.New(l.natsUser(t, "substorm-nats-leaves"))
	if err != nil {
		t.Fatal(err)
	}
	a := &leafAttacker{t: t, leaves: leaves, link: testenv.RogueLink{Address: net.JoinHostPort(string(l.natsPods(t)), "7422"),
		TLS: l.natsTLS(t), Creds: l.addLeaf(t, all, leaves), Domain: outpost}}
	var targets []string
	for _, name := range kept {
		for _, api := range []string{"$JS.API", wire.JetStreamAPI("demo")} {
			targets = append(targets, api+".STREAM.PURGE."+name, api+".STREAM.DELETE."+name)
		}
	}

	a.source()
	copied := a.copied()
	a.forge(append(targets, copied)) // an answer at copied, too, comes where the Site's streams listen
	a.rogue.Close()
	for _, isHub := range []bool{false, true} {
		a.link.IsHub = isHub
		a.rogue = a.link.Link(t)
		for _, target := range targets {
			a.insist(testenv.LeafMessage(target, "", ""))
			a.ask(target)
			a.forgeCopies(copied, target)
		}
	}

	unbound := *a
	unbound.link.IsHub = false
	untouched(t, all, before, func(target string) {
		unbound.link.Creds = l.natsCreds(t, "substorm-nats-account")
		unbound.rogue = unbound.link.Link(t)
		unbound.ask(target)
	})
	if _, err := all.Publish(t.Context(), "canary", nil); err != nil {
		t.Fatal(err)
	}
	untouched(t, all, before, func(target string) {
		unbound.link.Creds = l.natsCreds(t, "substorm-nats-leaves")
		unbound.rogue = unbound.link.Link(t)
		unbound.forgeCopies(a.copied(), target)
	})
}

// leafAttacker has what a leaf's Secret holds.
type leafAttacker struct {
	t      *testing.T
	link   testenv.RogueLink
	rogue  *testenv.Rogue
	leaves jetstream.JetStream // may do everything in the account LEAVES
	// listens is where the hub listens for what it sources from a stream of the leaf.
	listens map[string]string
}

// addLeaf has the Site source from the leaf until the test ends, and returns the leaf's credentials.
func (l *lab) addLeaf(t *testing.T, all, leaves jetstream.JetStream) []byte {
	t.Helper()
	l.kubectl(t, "patch", "site", "demo", "--type=merge", "-p", `{"spec":{"leaves":[{"code":"`+outpost+`"}]}}`)
	copies := map[string]string{wire.ObservationStream("demo"): wire.CopiedObservationStream("demo", outpost),
		wire.NoticeStream("demo"): wire.CopiedNoticeStream("demo", outpost)}
	for _, name := range copies {
		deleteAfter(t, leaves, name)
	}
	t.Cleanup(func() {
		l.kubectl(t, "patch", "site", "demo", "--type=merge", "-p", `{"spec":{"leaves":null}}`)
		for name := range copies {
			eventually(t, func() error { return sourcesNothing(all, name) })
		}
		l.kubectl(t, "delete", "secret", "demo-leaf-"+outpost)
	})
	var creds []byte
	eventually(t, func() error {
		text, err := l.tryKubectl("get", "secret", "demo-leaf-"+outpost, "-o", `jsonpath={.data.user\.creds}`)
		if err != nil {
			return err
		}
		creds, err = base64.StdEncoding.DecodeString(text)
		return err
	})
	return creds
}

// sourcesNothing is nil for a stream without sources. It works after the test's end, too.
func sourcesNothing(js jetstream.JetStream, name string) error {
	m, err := js.Conn().Request("$JS.API.STREAM.INFO."+name, nil, time.Minute)
	if err != nil {
		return err
	}
	var info jetstream.StreamInfo
	if err := json.Unmarshal(m.Data, &info); err != nil {
		return err
	}
	if info.Config.Name != name || len(info.Config.Sources) > 0 {
		return fmt.Errorf("%s still sources: %s", name, m.Data)
	}
	return nil
}

// source links, and waits until the hub listens for what it sources from both streams of the leaf.
func (a *leafAttacker) source() {
	a.t.Helper()
	a.rogue, a.listens = a.link.Link(a.t), map[string]string{}
	for _, stream := range []string{wire.ObservationStream(outpost), wire.NoticeStream(outpost)} {
		for _, filter := range []string{"", ".>"} {
			a.rogue.Send("LS+ " + wire.JetStreamAPI(outpost) + ".CONSUMER.CREATE." + stream + filter)
		}
	}
	for _, copies := range []string{wire.CopiedObservationStream("demo", outpost), wire.CopiedNoticeStream("demo", outpost)} {
		eventually(a.t, func() error { // another server begins to source at once; one that has asked in vain waits
			// There is no answer while the stream has no leader yet.
			m, err := a.leaves.Conn().Request("$JS.API.STREAM.LEADER.STEPDOWN."+copies, nil, 5*time.Second)
			if err == nil && !strings.Contains(string(m.Data), `"success":true`) {
				err = errors.New(string(m.Data))
			}
			return err
		})
	}
	eventually(a.t, func() error {
		a.answer()
		if len(a.listens) < 2 {
			return fmt.Errorf("the hub has asked for consumers of these only: %v", a.listens)
		}
		return nil
	})
}

// answer has the hub believe that the leaf has made the consumers that it has asked for.
func (a *leafAttacker) answer() {
	a.t.Helper()
	if err := a.rogue.Listen(); err != nil {
		a.t.Fatal(err)
	}
	heard := a.rogue.Heard
	a.rogue.Heard = nil
	for _, m := range heard {
		var asked struct {
			Stream string          `json:"stream_name"`
			Config json.RawMessage `json:"config"`
		}
		var config struct {
			Name    string `json:"name"`
			Deliver string `json:"deliver_subject"`
		}
		err := json.Unmarshal(m.Payload, &asked)
		if err == nil {
			err = json.Unmarshal(asked.Config, &config)
		}
		if err != nil {
			a.t.Fatalf("%s: %v: %s", m.Subject, err, m.Payload)
		}
		made, err := json.Marshal(map[string]any{"type": "io.nats.jetstream.api.v1.consumer_create_response",
			"stream_name": asked.Stream, "name": config.Name, "created": time.Now(), "config": asked.Config})
		if err != nil {
			a.t.Fatal(err)
		}
		a.rogue.Send(testenv.LeafMessage(m.Reply, "", string(made)))
		a.listens[asked.Stream] = config.Deliver
	}
}

// forge sends flow control of what the hub sources. Each kind does have its effect within the account LEAVES.
func (a *leafAttacker) forge(targets []string) {
	a.t.Helper()
	if _, err := a.leaves.CreateStream(a.t.Context(), jetstream.StreamConfig{Name: bait, Subjects: []string{"bait"}}); err != nil {
		a.t.Fatal(err)
	}
	deleteAfter(a.t, a.leaves, bait)
	for name, forged := range map[string]func(subject, target string) string{
		"flow control": func(subject, target string) string { return testenv.FlowControl("HMSG", subject, target) },
		"a stalled consumer": func(subject, target string) string {
			return testenv.Stalled("HMSG", subject, target, "100 Idle Heartbeat", "")
		},
	} {
		for _, stream := range []string{wire.ObservationStream(outpost), wire.NoticeStream(outpost)} {
			if _, err := a.leaves.Publish(a.t.Context(), "bait", nil); err != nil {
				a.t.Fatal(err)
			}
			eventually(a.t, func() error {
				a.answer() // the hub may have asked for another consumer
				for _, target := range append(targets, "$JS.API.STREAM.PURGE."+bait) {
					a.rogue.Send(forged(a.listens[stream], target))
				}
				if held(a.t, a.leaves, bait)[bait].State.Msgs > 0 {
					return fmt.Errorf("%s of %s has no effect within the account LEAVES", name, stream)
				}
				return nil
			})
		}
	}
}

// ask sends requests whose answers go to target.
func (a *leafAttacker) ask(target string) {
	a.t.Helper()
	own := canary + "." + guard
	for _, api := range []string{"$JS.API", wire.JetStreamAPI("demo")} {
		a.insist(testenv.LeafMessage(api+".CONSUMER.MSG.NEXT."+own, target, "{"))
		a.insist(testenv.LeafMessage(api+".CONSUMER.INFO."+own, target, ""))
		a.insist(testenv.LeafMessage(api+".STREAM.INFO."+canary, target, ""))
		a.insist(testenv.LeafMessage(api+".DIRECT.GET."+canary, target, "{"))
		a.insist(testenv.LeafMessage(api+".DIRECT.GET."+canary+".canary", target, ""))
	}
	a.insist(testenv.LeafMessage("$JS.ACK."+own+".1.1.1.1.1", target, "+NXT {"))
}

// copied is where a stream of the Site listens for the copies of what the leaf has sent. JetStream says there each second
// that it has nothing.
func (a *leafAttacker) copied() string {
	a.t.Helper()
	heard, err := a.leaves.Conn().SubscribeSync(wire.CopiedPrefix("demo", outpost) + ".>")
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = heard.Unsubscribe() }()
	m, err := heard.NextMsg(4 * time.Minute)
	if err != nil {
		a.t.Fatalf("nothing comes where the Site's streams listen: %v", err)
	}
	return m.Subject
}

// forgeCopies sends flow control of the copies.
func (a *leafAttacker) forgeCopies(copied, target string) {
	a.t.Helper()
	a.insist(testenv.FlowControl("HMSG", copied, target))
	a.insist(testenv.Stalled("HMSG", copied, target, "100 Idle Heartbeat", ""))
}

// insist sends what the hub may refuse. It ends the link then, so that another one is made.
func (a *leafAttacker) insist(message string) {
	a.t.Helper()
	if a.rogue.Try(message) != nil {
		a.rogue.Close()
		a.rogue = a.link.Link(a.t)
	}
}
