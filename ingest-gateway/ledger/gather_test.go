// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/ingest-gateway/ledger"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// TestGather: changes that come of datagrams alone are written together with others, and at the end; changes that come of objects are
// written at once, with the datagrams of their day.
func TestGather(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	l, err := ledger.Open(ledger.Config{Dir: t.TempDir(), Site: site, Gateway: gateway, Incarnation: "one", Gather: time.Hour}.Hasten())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx, js) }()
	now := time.Now()
	day := wire.DayOf(now)
	object := func(n uint64) {
		t.Helper()
		l.Received(camera, now, 100, wire.Digest{})
		awaitEntry(t, js, camera, day, wire.StepReceived, func(e wire.LedgerEntry) bool { return e.Incarnations["one"].Objects == n })
	}
	object(1) // from here on, what datagrams change is not due
	l.DatagramsReceived(sounder, now, 3, 300)
	l.DatagramsReceived(camera, now, 5, 500)
	object(2)
	object(3) // after another pass
	kv, err := js.KeyValue(t.Context(), wire.LedgerBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	if e, err := kv.Get(t.Context(), wire.LedgerKey(sounder, day, wire.StepReceived, gateway)); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("datagrams alone are written: %v, %v", e, err)
	}
	awaitEntry(t, js, camera, day, wire.StepReceived, func(e wire.LedgerEntry) bool { return e.Incarnations["one"].Datagrams == 5 })
	stop()
	if err := errors.Join(<-ended, l.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	awaitEntry(t, js, sounder, day, wire.StepReceived, func(e wire.LedgerEntry) bool { return e.Incarnations["one"].Datagrams == 3 })
}
