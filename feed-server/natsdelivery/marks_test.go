// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

func TestOrigins(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  jetstream.ConsumerConfig
		want map[string][]string
	}{
		"its own": {jetstream.ConsumerConfig{FilterSubject: wire.GapSubject(site, "model")}, map[string][]string{site: {"gap.hub.model"}}},
		"its own and leaves'": {
			jetstream.ConsumerConfig{FilterSubjects: []string{wire.GapSubject(site, "model"), wire.NoticeSubject(site, camera), wire.NoticeSubjects("north"), wire.NoticeSubjects("south")}},
			map[string][]string{site: {"gap.hub.model", "notice.hub.allsky-1"}, "north": {"notice.north.>"}, "south": {"notice.south.>"}},
		},
		"nothing": {jetstream.ConsumerConfig{}, map[string][]string{}},
	} {
		if diff := cmp.Diff(c.want, origins(&jetstream.ConsumerInfo{Config: c.cfg})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A gap between marks names no more than waited, and nothing that came after the last
// look; two of one look are one record.
func TestLeft(t *testing.T) {
	was := wire.DeliveryPlace{Epoch: "a", Next: 1, Last: 50, Waiting: 20}
	lost := func(from, to, count uint64) *missing {
		return &missing{Epoch: "a", From: from, To: to, Count: count, Reason: wire.GapRetention}
	}
	for name, c := range map[string]struct{ got, want *missing }{
		"up to the first that is left":     {missingUntil(was, 2, 12), lost(2, 11, 10)},
		"no more than waited":              {missingUntil(was, 2, 42), lost(2, 41, 20)},
		"nothing is left":                  {missingUntil(was, 41, 0), lost(41, 50, 10)},
		"the first came after the look":    {missingUntil(was, 41, 70), lost(41, 50, 10)},
		"a replica did not have it":        {missingUntil(was, 12, 12), nil},
		"what came and went":               {missingUntil(was, 60, 70), nil},
		"of two origins":                   {mergeMissing(lost(2, 11, 10), lost(5, 20, 3)), lost(2, 20, 13)},
		"no more than lie between":         {mergeMissing(lost(2, 5, 4), lost(3, 6, 4)), lost(2, 6, 5)},
		"of one":                           {mergeMissing(nil, lost(2, 5, 4)), lost(2, 5, 4)},
		"of the other":                     {mergeMissing(lost(2, 5, 4), nil), lost(2, 5, 4)},
		"of none":                          {mergeMissing(nil, nil), nil},
		"something is missing, it is said": {missingUntil(wire.DeliveryPlace{Epoch: "a", Last: 50}, 2, 5), lost(2, 4, 1)},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
