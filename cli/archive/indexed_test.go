// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// Days without a manifest that the index or the ledger know are named, as are days for which the index names other files than the bucket
// has. A rebuild has the index made again, even if it wrote nothing.
func TestIndexAndBucketDiffer(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	server := testenv.NATS(t, testenv.NATSOptions{})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	index, err := js.KeyValue(t.Context(), wire.IndexBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	ledger, err := js.KeyValue(t.Context(), wire.LedgerBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	put := func(kv jetstream.KeyValue, key string, value []byte, err error) {
		t.Helper()
		if err == nil {
			_, err = kv.Put(t.Context(), key, value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	entry, err := wire.Encode(wire.IndexEntry{Open: []wire.RootDay{
		{Day: "2026-11-18", Parts: wire.PartNumbers{{1, 2}}, Entries: 961},
		{Day: "2026-11-20", Parts: wire.PartNumbers{{1, 9}}, Entries: 7},
	}})
	put(index, "allsky-1", entry, err)
	put(index, wire.IndexListedKey, []byte("{}"), nil)
	totals, err := wire.Encode(wire.LedgerEntry{Incarnations: map[string]wire.Totals{"one": {Objects: 5}}})
	put(ledger, wire.LedgerKey("allsky-1", "2026-11-17", wire.StepAnnounced, wire.ArchivistWriter), totals, err)

	flags := append([]string{"--age", "0s", "--nats-servers", server.URL()}, f.flags(t)...)
	for _, verb := range [][]string{{"verify", "--quick"}, {"rebuild", "--dry-run"}} {
		out, notes, err := run(t, append(verb, flags...)...)
		for _, want := range []string{"NoManifest", "2026-11-17", "the ledger counts 5 objects", "2026-11-18", "the index knows 961 objects", "StaleIndex", "2026-11-20"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s does not say %q:\n%s%s", verb[0], want, out, notes)
			}
		}
		if failed := err != nil; failed != (verb[0] == "verify") {
			t.Errorf("%s: %v", verb[0], err)
		}
	}
	if _, err := index.Get(t.Context(), wire.IndexListedKey); err != nil {
		t.Errorf("a dry run changed the index: %v", err)
	}
	must(t, append([]string{"rebuild"}, flags...)...)
	if _, err := index.Get(t.Context(), wire.IndexListedKey); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("the index still passes for complete: %v", err)
	}
}
