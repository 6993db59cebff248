// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// A consumer's credentials open its own durables and nothing else: whatever it tries
// of others' is refused, and changes nothing.
func TestCredentialsOpenNothingElse(t *testing.T) {
	l, _ := oneServer(t)
	all := wire.FlowEntry{Mode: wire.FlowAll}
	l.declare(wire.ConsumerEntry{Consumer: "model", Flow: all})
	l.declare(wire.ConsumerEntry{Consumer: "other", Flow: all})
	l.declare(wire.ConsumerEntry{Consumer: "display", Flow: wire.FlowEntry{Mode: wire.FlowLatest}})
	l.serve("pod-0")
	for i := range 10 {
		l.announce(camera, i)
		l.telemetry(mag, i, 1)
	}
	// Another one's answer, on its way.
	other := l.connect("other")
	_, otherInbox := l.user("other")
	answers, err := other.SubscribeSync(otherInbox + ".>")
	if err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex
	var refused []string
	nc := l.connect("model", nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		mu.Lock()
		defer mu.Unlock()
		refused = append(refused, err.Error())
	}))
	_, inbox := l.user("model")
	ours, otherDurable := wire.ConsumerDurable("model", issue), wire.ConsumerDurable("other", issue)
	tries := map[string]bool{} // subject: whether it is published to
	for _, stream := range []string{wire.NoticeStream(site), wire.ObservationStream(site)} {
		for _, api := range []string{"CONSUMER.MSG.NEXT." + stream + "." + otherDurable, "CONSUMER.INFO." + stream + "." + otherDurable,
			"CONSUMER.DELETE." + stream + "." + otherDurable, "CONSUMER.DELETE." + stream + "." + ours, "CONSUMER.CREATE." + stream + ".mine.notice.hub.>",
			"CONSUMER.DURABLE.CREATE." + stream + ".mine", "CONSUMER.LIST." + stream, "STREAM.INFO." + stream, "STREAM.MSG.GET." + stream,
			"STREAM.PURGE." + stream, "STREAM.DELETE." + stream, "STREAM.UPDATE." + stream, "DIRECT.GET." + stream, "INFO",
			"CONSUMER.MSG.NEXT." + stream + ".>"} {
			tries["$JS.API."+api], tries[wire.ConsumerAPI+"."+api] = true, true
		}
		for _, earlier := range []string{"", "9999999999"} { // what other credentials of the consumer open
			tries[wire.ConsumerAPI+".CONSUMER.MSG.NEXT."+stream+"."+wire.ConsumerDurable("model", earlier)] = true
		}
		tries["$JS.ACK."+stream+"."+otherDurable+".1.1.1.1.0"] = true
	}
	for _, subject := range []string{wire.ObservationSubject(site, mag, channel), wire.NoticeSubject(site, camera), wire.GapSubject(site, "model"),
		wire.GapSubject(site, "other"), wire.LiveSubject(site, "display", wire.NoticeSubject(site, camera)), wire.HealthSubject(site, "Site", site),
		"$KV." + wire.RegistryBucket(site) + ".complete", "$KV." + wire.LeaseBucket(site) + ".delivery.0", wire.ConsumerAPI + ".CONSUMER.MSG.NEXT.CONS_hub_display." + wire.ConsumerDurable("display", issue),
		"$JS.API.STREAM.CREATE.MINE", wire.ConsumerAPI + ".STREAM.CREATE.MINE", "$SYS.REQ.SERVER.PING", otherInbox + ".guessed", "_INBOX.guessed"} {
		tries[subject] = true
	}
	for _, subject := range []string{">", "obs.>", wire.ObservationSubjects(site), wire.NoticeSubjects(site), wire.GapSubjects(site), "live.>", "$KV.>",
		"$JS.>", "$JS.ACK.>", wire.ConsumerAPI + ".>", "$JS.EVENT.>", "_INBOX.>", otherInbox + ".>", inbox + "_2.>", "health.>"} {
		tries[subject] = false
	}
	testenv.Await(t, "what is newest is there", func() bool { return l.look(t)[wire.ConsumerStream(site, "display")] == 2 }) // of camera and mag
	before := l.look(t)
	for subject, publishes := range tries {
		mu.Lock()
		refused = nil
		mu.Unlock()
		var err error
		if publishes {
			err = nc.PublishRequest(subject, inbox+".answer", []byte(`{"batch":1}`))
		} else {
			_, err = nc.SubscribeSync(subject)
		}
		if err == nil {
			err = nc.FlushTimeout(10 * time.Second)
		}
		if err != nil && !errors.Is(err, nats.ErrPermissionViolation) {
			t.Fatal(err)
		}
		testenv.Await(t, "the server says what it thinks of "+subject, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(refused) > 0
		})
		mu.Lock()
		if !strings.Contains(strings.ToLower(refused[0]), "permissions violation") || !strings.Contains(refused[0], subject) {
			t.Errorf("%s: %v", subject, refused)
		}
		mu.Unlock()
	}
	same(t, "what streams and durables hold", before, l.look(t))
	if m, err := answers.NextMsg(100 * time.Millisecond); err == nil {
		t.Errorf("another consumer was answered: %q", m.Data)
	}
	// It may do what it is there for.
	k := newTaken()
	consume(t, nc, wire.NoticeStream(site), "model", k, 0, nil)
	consume(t, nc, wire.ObservationStream(site), "model", k, 0, nil)
	testenv.Await(t, "its own is taken", func() bool { return k.count("notice") == 10 && k.count("obs") == 10 })
}

// look returns how many messages streams hold, and how far durables are.
func (l *lab) look(t *testing.T) map[string]uint64 {
	t.Helper()
	held := map[string]uint64{}
	for _, name := range []string{wire.NoticeStream(site), wire.ObservationStream(site), wire.ConsumerStream(site, "display")} {
		s, err := l.js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		held[name] = s.CachedInfo().State.Msgs
		durables := s.ListConsumers(t.Context())
		for d := range durables.Info() {
			if strings.HasPrefix(d.Name, "c_") {
				held[name+" "+d.Name] = d.Delivered.Consumer<<32 | d.AckFloor.Consumer
			}
		}
		if err := durables.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
			t.Fatal(err)
		}
	}
	return held
}
