// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/wis2"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// late publishes the notice of an object that came a day after it was observed.
func (l *lab) late(instrument string, number int) {
	l.t.Helper()
	n := l.notice(instrument, number)
	observed := n.ReceivedAt.AddDate(0, 0, -1)
	n.ObservedFrom, n.ObservedTo, n.TimeSource, n.Backfill = &observed, &observed, wire.TimeSourcePayload, true
	l.publishNotice(n)
}

// Notices of backfill are given to consumers of a Feed that includes them, and to no
// other: in the streams of the Site as in those that are filled.
func TestBackfill(t *testing.T) {
	for name, include := range map[string]bool{"Exclude": false, "Include": true} {
		t.Run(name, func(t *testing.T) {
			l, _ := oneServer(t)
			l.backfill = include
			l.declareFeed(2)
			streams := map[string]string{"model": wire.NoticeStream(site), "display": wire.ConsumerStream(site, "display"), "machines": wire.ConsumerStream(site, "machines")}
			l.declare(wire.ConsumerEntry{Consumer: "model", Flow: wire.FlowEntry{Mode: wire.FlowAll}})
			l.declare(wire.ConsumerEntry{Consumer: "display", Flow: wire.FlowEntry{Mode: wire.FlowLatest}})
			l.declare(wire.ConsumerEntry{Consumer: "machines", NoTelemetry: true, WIS2: true, Flow: wire.FlowEntry{Mode: wire.FlowAll}})
			l.late(camera, 1) // no filled stream begins with it
			l.announce("camera-2", 2)
			l.serve("pod-0")
			for _, name := range []string{streams["display"], streams["machines"]} {
				testenv.Await(t, name+" is filled", func() bool {
					s, err := l.js.Stream(t.Context(), name)
					return err == nil && s.CachedInfo().State.Msgs > 0
				})
			}
			l.late(camera, 3)
			l.announce(mag, 4)
			filled, all := []int{2, 4}, []int{2, 4}
			if include {
				filled, all = []int{2, 3, 4}, []int{1, 2, 3, 4}
			}
			for consumer, want := range map[string][]int{"model": all, "display": filled, "machines": filled} {
				var got []int
				testenv.Await(t, consumer+" is given the last", func() bool {
					got = l.given(consumer, streams[consumer], got)
					return slices.Contains(got, 4)
				})
				if !slices.Equal(got, want) {
					t.Errorf("%s was given %v, want %v", consumer, got, want)
				}
			}
		})
	}
}

// given adds what a consumer takes of its durable, with its own credentials.
func (l *lab) given(consumer, stream string, numbers []int) []int {
	l.t.Helper()
	js, err := jetstream.NewWithAPIPrefix(l.connect(consumer), wire.ConsumerAPI)
	if err != nil {
		l.t.Fatal(err)
	}
	durable, err := js.Consumer(l.t.Context(), stream, wire.ConsumerDurable(consumer, issue))
	if err != nil {
		l.t.Fatal(err)
	}
	batch, err := durable.Fetch(100, jetstream.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		l.t.Fatal(err)
	}
	for m := range batch.Messages() {
		if n, is := l.number(m.Data()); is {
			numbers = append(numbers, n)
		}
		if err := m.Ack(); err != nil {
			l.t.Fatal(err)
		}
	}
	return numbers
}

// number is the number of a notice, or of the object of a WIS2 notification.
func (l *lab) number(data []byte) (int, bool) {
	if n, err := wire.Decode[wire.Notice](data); err == nil {
		var number int
		_, err := fmt.Sscan(n.Name, &number)
		return number, err == nil
	}
	var m wis2.Message
	if json.Unmarshal(data, &m) != nil {
		return 0, false
	}
	for number := range 10 {
		digest := l.notice(camera, number).Digest
		if m.Properties.Integrity.Value == base64.StdEncoding.EncodeToString(digest[:]) {
			return number, true
		}
	}
	return 0, false
}
