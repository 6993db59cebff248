// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// filled is a stream of 100 messages, the first of them from mag-9, and its hub, whose memory holds
// none of them.
func filled(t *testing.T) (jetstream.JetStream, jetstream.Stream, *Hub, Place) {
	t.Helper()
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	makeStream(t, js)
	if _, err := js.Publish(t.Context(), "obs.hub.mag-9.raw", []byte("000000")); err != nil {
		t.Fatal(err)
	}
	publish(t, js, 1, 100)
	s, err := js.Stream(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	h := startHub(t, js, 1<<20)
	place, err := h.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return js, s, h, place
}

func (h *Hub) at(t *testing.T, token wire.ResumeToken) *Cursor {
	t.Helper()
	c, err := h.Cursor(t.Context(), token, semaphore.NewWeighted(1), all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func purge(t *testing.T, s jetstream.Stream, subject string, before uint64) {
	t.Helper()
	if err := s.Purge(t.Context(), jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(before)); err != nil {
		t.Fatal(err)
	}
}

// Messages that leave the stream behind its first message, which stays, are missing as well.
func TestHoles(t *testing.T) {
	t.Parallel()
	_, s, h, place := filled(t)
	purge(t, s, "obs.hub.mag-1.raw", 90)
	purge(t, s, "obs.hub.mag-0.raw", 80)
	c := h.at(t, wire.ResumeToken{Epoch: place.Epoch, Sequence: 10, Index: 1<<32 - 1})
	_, missing := read(t, c, 1000, 1)
	// Nothing is left of 11 to 79, and every second one of 80 to 89.
	want := &Missing{Epoch: place.Epoch, From: 11, To: 88, Count: 69 + 5, Reason: wire.GapRetention}
	if diff := cmp.Diff(want, missing); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got, missing := read(t, c, 1000, 16)
	if missing != nil || got[0] != "000080" || got[len(got)-1] != "000099" {
		t.Errorf("got %v, missing %+v", got, missing)
	}
}

// If all messages behind a place left the stream, that is reported, even if nothing new comes.
func TestHoleToTheEnd(t *testing.T) {
	t.Parallel()
	js, s, h, place := filled(t)
	purge(t, s, "obs.hub.mag-0.raw", 101)
	purge(t, s, "obs.hub.mag-1.raw", 101)
	c := h.at(t, wire.ResumeToken{Epoch: place.Epoch, Sequence: 10, Index: 1<<32 - 1})
	got, missing := read(t, c, 1000, 1)
	want := &Missing{Epoch: place.Epoch, From: 11, To: 100, Count: 90, Reason: wire.GapRetention}
	if diff := cmp.Diff(want, missing); diff != "" {
		t.Errorf("got %v (-want +got):\n%s", got, diff)
	}
	publish(t, js, 100, 101)
	got, missing = read(t, c, 1000, 1)
	if missing != nil || got[0] != "000100" {
		t.Errorf("got %v, missing %+v", got, missing)
	}
}

// Retention that overtakes what follows the stream, inside what came together, is
// not taken for what the stream never had.
func TestHoleInBurst(t *testing.T) {
	t.Parallel()
	_, s, h, _ := filled(t)
	purge(t, s, "obs.hub.>", 60)
	burst := []stream.Message{{Sequence: 10}, {Sequence: 60}, {Sequence: 61}}
	ring := NewBudget(1 << 20).NewRing(10)
	rest, err := h.afterHole(t.Context(), ring, 10, burst)
	if err != nil {
		t.Fatal(err)
	}
	first, _ := ring.Span()
	if len(rest) != 2 || rest[0].Sequence != 60 || first != 60 {
		t.Errorf("the ring begins at %d, and gets %+v", first, rest)
	}
}

// A stream that nothing was deleted from has no holes.
func TestNoHoles(t *testing.T) {
	for name, c := range map[string]struct {
		batch Batch
		from  uint64
		state jetstream.StreamState
		want  *Missing
	}{
		"nothing was deleted": {Batch{Messages: []*Message{{Sequence: 12}, {Sequence: 14}}}, 10, jetstream.StreamState{FirstSeq: 1, LastSeq: 20}, nil},
		"whole":               {Batch{Messages: []*Message{{Sequence: 10}, {Sequence: 11}}}, 10, jetstream.StreamState{FirstSeq: 5, LastSeq: 20, NumDeleted: 7}, nil},
		"gone since it was read": {
			Batch{Messages: []*Message{{Sequence: 10}, {Sequence: 11}}}, 10, jetstream.StreamState{FirstSeq: 19, LastSeq: 20}, nil,
		},
		"before and between": {
			Batch{Messages: []*Message{{Sequence: 12}, {Sequence: 15}}}, 10, jetstream.StreamState{FirstSeq: 12, LastSeq: 20, NumDeleted: 2},
			&Missing{From: 10, To: 14, Count: 4, Reason: wire.GapRetention},
		},
	} {
		if diff := cmp.Diff(c.want, holes(c.batch, c.from, c.state)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// If a message was given in part, the rest of it is missing once it is gone; if it was given
// whole, nothing is.
func TestRestOfMessage(t *testing.T) {
	t.Parallel()
	js, s, _, place := filled(t)
	data := wire.AppendTelemetryHeader(nil, "mag-0", "raw")
	for n := range 10 {
		data = wire.AppendDatagram(data, wire.Datagram{ReceivedAt: time.Unix(int64(n), 0), Source: netip.MustParseAddrPort("192.0.2.7:4000"), Payload: fmt.Append(nil, n)})
	}
	ack, err := js.Publish(t.Context(), "obs.hub.mag-0.raw", data)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, js, 0, 5)
	part := wire.ResumeToken{Epoch: place.Epoch, Sequence: ack.Sequence, Index: 3}
	whole := part
	whole.Index = 1<<32 - 1
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(ack.Sequence+1)); err != nil {
		t.Fatal(err)
	}
	// Memory of another replica, which began after that.
	h := startHub(t, js, 1<<20)
	_, missing := read(t, h.at(t, part), 100, 5)
	if diff := cmp.Diff(&Missing{Epoch: place.Epoch, From: ack.Sequence, To: ack.Sequence, Count: 1, Reason: wire.GapRetention}, missing); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got, missing := read(t, h.at(t, whole), 100, 5)
	if missing != nil {
		t.Errorf("missing %+v", missing)
	}
	expect(t, got, 0, 5, 1)
}

// Messages that a replica does not have yet, and the stream's leader has, are not taken for gone.
func TestLateReplica(t *testing.T) {
	t.Parallel()
	_, s, h, place := filled(t)
	// As after a read that a replica answered which ends at message 49.
	if err := h.goneTo(t.Context(), place.Epoch, 50, 100); err == nil {
		t.Error("messages that are in the stream are taken for gone")
	}
	purge(t, s, "obs.hub.mag-1.raw", 101)
	if err := h.goneTo(t.Context(), place.Epoch, 50, 100); err == nil {
		t.Error("half of them are in the stream, and all are taken for gone")
	}
	purge(t, s, "obs.hub.mag-0.raw", 101)
	if err := h.goneTo(t.Context(), place.Epoch, 50, 100); err != nil {
		t.Errorf("nothing of them is left: %v", err)
	}
}
