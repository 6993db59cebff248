// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// The leader of the claims is asked whether a name has a newer version: a replica that is behind knows only the older one, and an object that is
// restored would be listed as current beside the newer one.
func TestNewerVersionOnReplicaBehind(t *testing.T) {
	t.Parallel()
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: wire.NamesBucket("hub"), History: 5})
	if err != nil {
		t.Fatal(err)
	}
	put := func(key string, value []byte) uint64 {
		t.Helper()
		revision, err := kv.Put(t.Context(), key, value)
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	put(wire.NamesListedKey, []byte("{}"))
	claim, behind := wire.NameClaim{Name: "a.fits"}, uint64(0)
	for version := 1; version <= 2; version++ {
		claim.Versions = append(claim.Versions, wire.NameVersion{Version: version, Digest: sha256.Sum256([]byte{byte(version)}), Size: 1,
			Key: wire.NamedKey("hub", "camera", "a.fits", version), ReceivedAt: time.Now().UTC(), Gateway: "g", Incarnation: "i", Announced: true})
		value, err := wire.Encode(claim)
		if err != nil {
			t.Fatal(err)
		}
		if revision := put(wire.NameKey("camera", "a.fits"), value); version == 1 {
			behind = revision
		}
	}
	w := &Writer{cfg: Config{Base: holder.Base{Site: "hub", JetStream: &testenv.Behind{JetStream: js, Revision: behind}}}}
	for _, v := range claim.Versions {
		newer, err := w.hasNewer(t.Context(), "camera", wire.Record{ID: v.Key, Name: "a.fits", Version: v.Version})
		if err != nil || newer != (v.Version == 1) {
			t.Errorf("version %d of two has a newer one: %v, %v", v.Version, newer, err)
		}
	}
}
