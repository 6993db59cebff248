// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/wire"
)

// TestLabels: labels that no Feed selects by change nothing for Feeds, and those that one selects by change it, whatever else of
// the Instrument changes with them.
func TestLabels(t *testing.T) {
	w := newFeedWorld(t)
	g := w.gateway("pool", "pool-0")
	w.applyFeed("fields", ", selector: {matchLabels: {group: fields}}")
	selects := func(want ...string) {
		t.Helper()
		eventually(t, "what the Feed selects", func() error {
			value, err := g.get(wire.RegistryBucket("hub"), wire.RegistryFeedKey("fields"))
			if err != nil {
				return err
			}
			e, err := wire.Decode[wire.FeedEntry](value)
			if err == nil && !slices.Equal(e.Instruments, want) {
				err = fmt.Errorf("%q, want %q", e.Instruments, want)
			}
			return err
		})
	}
	change := func(name, labels string, connections int) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata":{"labels":%s},"spec":{"limits":{"maxConnections":%d}}}`, labels, connections)
		if err := w.Patch(t.Context(), w.instrument(name), client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the entry of "+name, func() error {
			e, err := g.entry(name)
			if err == nil && e.MaxConnections != connections {
				err = fmt.Errorf("it has %d connections, want %d", e.MaxConnections, connections)
			}
			return err
		})
	}
	selects("mag-1", "mag-2")
	before := w.revisions()[wire.RegistryFeedKey("fields")]
	change("mag-1", `{"rack":"1"}`, 7)
	change("mag-1", `{"rack":null,"shelf":"2"}`, 8)
	if is := w.revisions()[wire.RegistryFeedKey("fields")]; is != before {
		t.Errorf("the Feed's entry was written: its revision was %d and is %d", before, is)
	}
	change("mag-1", `{"group":"auroras","shelf":"3"}`, 9)
	selects("mag-2")
	change("camera", `{"group":"fields"}`, 7)
	selects("camera", "mag-2")
	change("mag-2", `{"group":null}`, 7)
	selects("camera")
}
