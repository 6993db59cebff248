// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/feed-server/state"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// noted returns a watch with a cursor at the consumer's place.
func noted(p *places, uid, epoch string, next uint64, marks map[string]uint64) *watch {
	name := wire.NoticeStream(site)
	log := slog.New(slog.DiscardHandler)
	meter := state.New(state.Config{Site: site, Registry: registry.New(), Logger: log, Metrics: prometheus.NewRegistry()}).Of(wire.ConsumerEntry{Consumer: "model"})
	w := &watch{delivery: &delivery{cfg: Config{Site: site}}, worker: &worker{places: p, log: log, meter: meter}, consumer: "model"}
	w.selection.Notices = name
	w.cursor = wire.DeliveryCursor{UID: uid, Missing: map[wire.GapReason]uint64{},
		Places: map[string]wire.DeliveryPlace{name: {Epoch: epoch, Created: made, Next: next, Waits: true, Last: next + 2}},
		Marks:  map[string]map[string]uint64{name: marks}}
	return w
}

// The place that is noted takes the cursor of the same consumer and stream further; and nothing is
// noted behind a gap that is in no cursor yet.
func TestNoted(t *testing.T) {
	const epoch, name = "1a2008d700b", "NOTICE_" + site
	p := &places{cursor: wire.FilledCursor{Places: map[string]wire.FilledPlace{}}}
	w := noted(p, "uid", epoch, 20, nil)
	w.note()
	w.cursor.Places[name] = wire.DeliveryPlace{Epoch: epoch, Next: 40}
	w.recordGap(name, missing{Epoch: epoch, From: 20, To: 39, Count: 20, Reason: wire.GapRetention})
	w.note()
	for what, c := range map[string]struct {
		uid, epoch string
		next, want uint64
	}{
		"behind":           {"uid", epoch, 10, 20},
		"just behind":      {"uid", epoch, 19, 20},
		"as far":           {"uid", epoch, 20, 20},
		"further":          {"uid", epoch, 30, 30},
		"another consumer": {"other", epoch, 10, 10},
		"another stream":   {"uid", "1a2008d700c", 10, 10},
	} {
		later := noted(p, c.uid, c.epoch, c.next, map[string]uint64{site: 12, "north": 25})
		later.catchUp()
		want := wire.DeliveryPlace{Epoch: c.epoch, Created: made, Next: c.want, Waits: c.want == c.next, Last: max(c.next+2, c.want-1)}
		if diff := cmp.Diff(want, later.cursor.Places[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		marks := map[string]uint64{site: 12, "north": 25}
		if c.want != c.next {
			delete(marks, site) // acknowledged since, or reported
		}
		if diff := cmp.Diff(marks, later.cursor.Marks[name]); diff != "" {
			t.Errorf("%s: marks (-want +got):\n%s", what, diff)
		}
	}
}
