// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// The bucket of names is lost while no gateway runs: an object that has a name keeps it.
func TestNamesAreLost(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	l.declare(t, httpInstrument("camera", port))
	dir := t.TempDir()
	g := l.start(t, gatewayOptions{dir: dir})
	g.awaitReady()
	awaitListening(t, port)
	object, other := random(1, 300_000), random(2, 300_000)
	put(in(port, "camera", "big/x"), object).wantReceipt(t, 201, object)
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	bucket := wire.NamesBucket(l.site)
	if err := l.js.DeleteKeyValue(t.Context(), bucket); err != nil {
		t.Fatal(err)
	}
	if _, err := l.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: bucket, Storage: jetstream.FileStorage}); err != nil {
		t.Fatal(err)
	}
	// Its receipt would be for bytes under a key that they do not get, or get for a while.
	g = l.start(t, gatewayOptions{dir: dir})
	g.awaitReady()
	awaitListening(t, port)
	put(in(port, "camera", "big/x"), other).wantRefusal(t, 409, wire.CauseNameConflict)
	put(in(port, "camera", "big/x"), object).wantReceipt(t, 200, object)
	put(in(port, "camera", "big/y"), other).wantReceipt(t, 201, other)
}
