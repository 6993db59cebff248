// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// TestRequestTakesTheIDOfANotice: JetStream tells repeats by Nats-Msg-Id alone, whatever their subjects, and no permission sees a header:
// who may request changes of a guest's objects can have the notice of another instrument's named object dropped as a repeat.
// docs/explanation/security.md says so, and what becomes of the object.
func TestRequestTakesTheIDOfANotice(t *testing.T) {
	t.Parallel()
	l := newLab(t, testenv.NATS(t, testenv.NATSOptions{Operator: true, Unsynced: true}), 1)
	now := time.Now().UTC()
	key := wire.NamedKey(code, camera, "tonight.fits", 1)
	n := wire.Notice{Site: code, Instrument: camera, Record: wire.Record{ID: key, Key: key, Name: "tonight.fits", Digest: wire.Digest{1}, Size: 1,
		State: wire.StateCurrent, ReceivedAt: now, TimeSource: wire.TimeSourceReceived, Gateway: pod, Incarnation: "one"}}
	announce := func() bool {
		t.Helper()
		m, err := stream.NoticeMessage(n, pod)
		if err != nil {
			t.Fatal(err)
		}
		ack, err := l.js.PublishMsg(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		return !ack.Duplicate
	}
	for _, c := range credentials() {
		if c.name != "mirror that pulls" {
			continue
		}
		attacker, err := jetstream.New(c.connect(l).nc)
		if err != nil {
			t.Fatal(err)
		}
		guest := wire.RequestSubject(code, wire.GuestName("arctic", "cam"))
		if _, err := attacker.Publish(t.Context(), guest, []byte("{}"), jetstream.WithMsgID(n.MessageID())); err != nil {
			t.Fatal(err)
		}
	}
	if announce() {
		t.Error("the notice is stored: docs/explanation/security.md says that a request can take its ID")
	}
	n.ID += "x" // no request was sent for it
	if !announce() {
		t.Error("a notice with an ID of its own is not stored")
	}
}
