// SPDX-License-Identifier: Apache-2.0

package names_test

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/ingest-gateway/names"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// Names in a folder cost no more requests than names without one, but for the claim of the folder.
func TestRequestsOfFolders(t *testing.T) {
	t.Parallel()
	nc := testenv.NATS(t, testenv.NATSOptions{}).Connect(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	testenv.CreateSite(t, js, "hub")
	kv, err := js.KeyValue(t.Context(), wire.NamesBucket("hub"))
	if err == nil {
		_, err = kv.PutString(t.Context(), wire.NamesListedKey, "{}")
	}
	if err != nil {
		t.Fatal(err)
	}
	n := names.New(names.Config{Site: "hub", JetStream: js, Logger: slog.New(slog.DiscardHandler)})
	requests := func(folder string, objects int) uint64 {
		t.Helper()
		before := nc.Stats().OutMsgs
		for i := range objects {
			name := fmt.Sprintf("%s%d.txt", folder, i)
			held, err := n.Claim(t.Context(), names.Wanted{Instrument: "camera", Name: name, Digest: sha256.Sum256([]byte(name)), Size: 1,
				ReceivedAt: time.Now(), Gateway: "north-0", Incarnation: "one"})
			if err != nil || !held.Own {
				t.Fatalf("%s: %+v, %v", name, held, err)
			}
		}
		return nc.Stats().OutMsgs - before
	}
	requests("first-", 1) // it looks for the bucket
	const objects = 1000
	without := requests("", objects)
	within := requests("2026/11/28/", objects)
	if most := without + 3*2; within > most { // of each folder a look and its claim
		t.Errorf("%d objects in a folder cost %d requests, and without one %d", objects, within, without)
	}
}
