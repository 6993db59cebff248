// SPDX-License-Identifier: Apache-2.0

package mirrorindex_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
)

// The sum of a list changes with everything that a mirror acts upon, and an index names no persons.
func TestCause(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	sums, list := map[wire.Digest]string{}, map[string]func(*wire.Record){
		"current":               func(*wire.Record) {},
		"superseded":            func(r *wire.Record) { r.Supersede() },
		"retracted":             func(r *wire.Record) { r.Retract("a lamp", "anna@example.org", at) },
		"purged":                func(r *wire.Record) { r.Purge("a face", "anna@example.org", at) },
		"expired":               func(r *wire.Record) { r.Expire("kept for 48h", at) },
		"expired and retracted": func(r *wire.Record) { r.Retract("a lamp", "anna@example.org", at); r.Expire("kept for 48h", at) },
	}
	for name, becomes := range list {
		r := wire.Record{ID: "o/thule/camera/n/a", State: wire.StateCurrent, ReceivedAt: at}
		becomes(&r)
		e := mirrorindex.EntryOf("a", &r)
		text, err := json.Marshal(e)
		if err != nil || len(text) == 0 || e.Is() != r.Outcome() {
			t.Fatalf("%s: %s, %v", name, text, err)
		}
		if want := name == "retracted" || name == "purged" || name == "expired and retracted"; e.Removed() != want {
			t.Errorf("%s: %s is removed: %t", name, text, e.Removed())
		}
		var read map[string]any
		if err := json.Unmarshal(text, &read); err != nil || read["changedBy"] != nil {
			t.Errorf("%s: %s, %v", name, text, err)
		}
		sum := mirrorindex.SumOf([]mirrorindex.Entry{e}).Content
		if other := sums[sum]; other != "" {
			t.Errorf("a list with an object that is %s sums up as one with an object that is %s", name, other)
		}
		sums[sum] = name
		e.Cause, e.Retracted = "", false
		if e.Removed() {
			t.Errorf("%s, without a cause, is removed", name)
		}
	}
}
