// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// If a Feed, and a consumer of it, name no instruments, the running work also delivers a new
// instrument, and nothing of it before the registry has its entry.
func TestEverything(t *testing.T) {
	l, _ := oneServer(t)
	const mag2 = "mag-2"
	entry, err := wire.Encode(wire.FeedEntry{UID: "feed-uid", Revision: 1, Feed: feed, Notices: wire.NoticeStream(site), Telemetry: wire.ObservationStream(site),
		Instruments: []string{wire.AllInstruments}})
	l.put(wire.RegistryFeedKey(feed), entry, err)
	l.declare(wire.ConsumerEntry{Consumer: "display", Flow: wire.FlowEntry{Mode: wire.FlowLatest}})
	l.serve("pod-0")
	k := newTaken()
	consume(t, l.connect("display"), wire.ConsumerStream(site, "display"), "display", k, 0, func(jetstream.Msg) bool { return true })
	l.announce(mag, 1)
	testenv.Await(t, "it flows", func() bool { return slices.Contains(k.distinct("notice"), 1) })
	l.announce(mag2, 2) // no consumer may know it yet
	l.announce(mag, 3)
	testenv.Await(t, "what came behind it is given", func() bool { return slices.Contains(k.distinct("notice"), 3) })

	restricted, err := wire.Encode(wire.InstrumentEntry{UID: "secret", Revision: 2, Instrument: "secret", Access: &wire.AccessEntry{Live: wire.AccessRestricted}})
	l.put(wire.RegistryInstrumentKey("secret"), restricted, err)
	another, err := wire.Encode(wire.InstrumentEntry{UID: mag2, Revision: 2, Instrument: mag2})
	l.put(wire.RegistryInstrumentKey(mag2), another, err)
	marker, err := wire.Encode(wire.RegistryComplete{Revision: 2, Count: len(instruments) + 2, Feeds: 1, Consumers: 1})
	l.put(wire.RegistryCompleteKey, marker, err)
	sent := 3
	testenv.Await(t, "the new one is given", func() bool {
		sent += 2
		l.announce("secret", sent)
		l.announce(mag2, sent+1)
		return slices.ContainsFunc(k.distinct("notice"), func(n int) bool { return n > 3 && n%2 == 0 })
	})
	for _, n := range k.distinct("notice") {
		if n == 2 || n > 3 && n%2 == 1 {
			t.Errorf("notice %d was given", n)
		}
	}
}

// TestSameWork: another instrument ends no work, another flow does.
func TestSameWork(t *testing.T) {
	t.Parallel()
	was := registry.Selection{Consumer: wire.ConsumerEntry{Consumer: "display", UID: "c-1", Generation: 1, Revision: 4},
		Feed: wire.FeedEntry{Feed: feed, UID: "f-1", Revision: 4, Instruments: []string{mag}}, Notices: "NOTICE_hub", Instruments: map[string]bool{mag: true}}
	is := was
	is.Feed.Revision, is.Feed.Instruments, is.Instruments = 5, []string{camera, mag}, map[string]bool{camera: true, mag: true}
	is.Consumer.Revision, is.Consumer.Instruments = 5, []string{camera, mag}
	if !sameWork(was, is) {
		t.Error("another instrument ends the work")
	}
	if len(was.Feed.Instruments) != 1 || was.Consumer.Revision != 4 {
		t.Errorf("it was changed: %+v", was)
	}
	for what, change := range map[string]func(*registry.Selection){
		"another flow":     func(s *registry.Selection) { s.Consumer.Flow.Mode = wire.FlowSample },
		"another durable":  func(s *registry.Selection) { s.Consumer.Durable = "c_display_1" },
		"another consumer": func(s *registry.Selection) { s.Consumer.UID = "c-2" },
		"no notices":       func(s *registry.Selection) { s.Notices = "" },
		"another channel":  func(s *registry.Selection) { s.Channels = map[string]bool{channel: true} },
		"backfill":         func(s *registry.Selection) { s.Feed.Backfill = true },
	} {
		is := was
		if change(&is); sameWork(was, is) {
			t.Errorf("%s is the same work", what)
		}
	}
}
