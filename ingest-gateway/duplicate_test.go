// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// awaitMarked waits until the claim of a name says that its object is announced.
func (l *lab) awaitMarked(t *testing.T, name string) {
	t.Helper()
	kv, err := l.js.KeyValue(t.Context(), wire.NamesBucket(l.site))
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the name "+name+" is marked", func() (bool, string) {
		e, err := kv.Get(t.Context(), wire.NameKey("camera", name))
		if err != nil {
			return false, err.Error()
		}
		c, err := wire.Decode[wire.NameClaim](e.Value())
		latest, named := c.Latest()
		return err == nil && named && latest.Announced, fmt.Sprintf("%+v, %v", c, err)
	})
}

// wantStored fails where the store does not hold an object under its name, with
// metadata from which the manifests can be rebuilt.
func (l *lab) wantStored(t *testing.T, name string, object []byte) {
	t.Helper()
	key := wire.NamedKey(l.site, "camera", name, 1)
	digest, size := l.digestOf(t, wire.Record{ID: key, Key: key, Size: int64(len(object))})
	if digest != sha256.Sum256(object) || size != int64(len(object)) {
		t.Fatalf("%s: the store has %d bytes, digest %s", key, size, digest)
	}
	info, err := l.store.Head(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := wire.NoticeFromMetadata(key, info.Metadata); err != nil || n.Digest != digest || n.Name != name {
		t.Fatalf("%s: its metadata says %+v, %v", key, n, err)
	}
}

// lose does what an operator's mistake does to an object in the bucket.
var lose = map[string]func(t *testing.T, l *lab, key string){
	"deleted": func(t *testing.T, l *lab, key string) {
		if err := l.store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	},
	"overwritten": func(t *testing.T, l *lab, key string) {
		if err := l.store.Put(t.Context(), key, strings.NewReader("other"), 5, objectstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	},
	"overwritten long after, with size and metadata as they were": func(t *testing.T, l *lab, key string) {
		info, err := l.store.Head(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		n, err := wire.NoticeFromMetadata(key, info.Metadata)
		if err != nil {
			t.Fatal(err)
		}
		n.ReceivedAt = n.ReceivedAt.Add(-time.Hour)
		metadata, err := wire.ObjectMetadata(n)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.store.Put(t.Context(), key, bytes.NewReader(make([]byte, info.Size)), info.Size, objectstore.PutOptions{Metadata: metadata}); err != nil {
			t.Fatal(err)
		}
	},
}

// awaitListed waits until the manifest lists an object.
func (l *lab) awaitListed(t *testing.T, n wire.Notice) {
	t.Helper()
	await(t, n.ID+" is listed", func() (bool, string) {
		for r, err := range manifest.Records(t.Context(), l.store, l.site, n.Instrument, wire.DayOf(n.ReceivedAt)) {
			if err == nil && r.ID == n.ID {
				return true, ""
			}
		}
		return false, ""
	})
}

// list writes the second part of a day's manifest, as an archivist does.
func (l *lab) list(t *testing.T, r wire.Record) {
	t.Helper()
	day := wire.DayOf(r.ReceivedAt)
	data, err := wire.Manifest{Header: wire.ManifestHeader{Site: l.site, Instrument: "camera", Day: day}, Records: []wire.Record{r}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.store.Put(t.Context(), wire.ManifestPartKey(l.site, "camera", day, 2), bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{CreateOnly: true}); err != nil {
		t.Fatal(err)
	}
}

// A duplicate is receipted only for what the store holds: what was lost is stored again
// from the bytes that the duplicate brings, whichever way it comes.
func TestDuplicateOfWhatIsGone(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	l.declare(t, httpInstrument("camera", port))
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	awaitListening(t, port)
	object, large := random(1, 300_000), random(2, 18<<20)
	ways := map[string]func(t *testing.T, name string, object []byte){
		"put": func(t *testing.T, name string, object []byte) {
			put(in(port, "camera", name), object).wantReceipt(t, 200, object)
		},
		"expect": func(t *testing.T, name string, object []byte) {
			sent := &counting{Reader: bytes.NewReader(object)}
			ask(http.MethodPut, in(port, "camera", name), sent, "Expect", "100-continue", "Repr-Digest", reprDigest(object)).wantReceipt(t, 200, object)
			if sent.n != len(object) {
				t.Errorf("%d of %d bytes were asked for", sent.n, len(object))
			}
		},
		"tus": func(t *testing.T, name string, object []byte) {
			url := beginUpload(t, port, name, len(object))
			last := patch(url, 0, bytes.NewReader(object))
			last.wantOffset(t, 204, len(object))
			if last.header.Get("Repr-Digest") != reprDigest(object) {
				t.Errorf("the last answer is no receipt: %v", last)
			}
		},
	}
	for way, send := range ways {
		for how, lose := range lose {
			for size, object := range map[string][]byte{"small": object, "large": large} {
				name := way + "/" + how + "/" + size
				put(in(port, "camera", name), object).wantReceipt(t, 201, object)
				l.awaitMarked(t, name)
				lose(t, l, wire.NamedKey(l.site, "camera", name, 1))
				send(t, name, object)
				l.wantStored(t, name, object)
				put(in(port, "camera", name), object[1:]).wantRefusal(t, 409, wire.CauseNameConflict)
			}
		}
	}
	if n := len(l.notices(t)); n != 18 {
		t.Errorf("%d objects are announced, 18 were sent", n)
	}
	if _, metrics := g.get("/metrics"); !strings.Contains(metrics, `substorm_gateway_restored_total{instrument="camera"} 18`) {
		t.Error("what was stored again is not counted")
	}
}

// An upload that became an object is one for as long as the store holds the object.
func TestUploadOfWhatIsGone(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	l.declare(t, httpInstrument("camera", port))
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	awaitListening(t, port)
	for i, c := range []struct {
		named bool
		lost  string
	}{{true, "deleted"}, {true, "overwritten"}, {false, "deleted"}, {false, "overwritten"}} {
		for size, object := range [][]byte{random(uint64(10+i), 1000), random(uint64(20+i), 300_000)} {
			name := ""
			if c.named {
				name = fmt.Sprintf("%s-%d", c.lost, size)
			}
			url := beginUpload(t, port, name, len(object))
			patch(url, 0, bytes.NewReader(object)).wantOffset(t, 204, len(object))
			tus(http.MethodHead, url, nil).wantOffset(t, 200, len(object))
			notices := l.notices(t)
			n := notices[len(notices)-1]
			l.awaitListed(t, n)
			lose[c.lost](t, l, n.Key)
			if r := tus(http.MethodHead, url, nil); r.status != http.StatusNotFound {
				t.Errorf("of an object that was %s (%s), HEAD of its upload says %v", c.lost, n.ID, r)
			}
		}
	}
}

// A duplicate closes the record of the damage that it repairs, in the status and in the ledger.
func TestDuplicateClosesDamage(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	l.declare(t, httpInstrument("camera", port))
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	awaitListening(t, port)
	object := random(1, 300_000)
	put(in(port, "camera", "a"), object).wantReceipt(t, 201, object)
	l.awaitMarked(t, "a")
	n := l.notices(t)[0]
	l.awaitListed(t, n)
	lose["deleted"](t, l, n.Key)

	// A feed server finds it, and the archivist confirms.
	status, err := l.js.KeyValue(t.Context(), wire.StatusBucket(l.site))
	if err != nil {
		t.Fatal(err)
	}
	found, err := wire.Encode(wire.DamageOf("camera", n.Record, wire.DamageMissing, "feed-0", time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	key := wire.DamageKey("camera", n.ID)
	if _, err := status.Create(t.Context(), key, found); err != nil {
		t.Fatal(err)
	}
	l.awaitLedger(t, "camera", wire.StepDamaged, func(s wire.Totals) bool { return s.Objects == 1 })

	put(in(port, "camera", "a"), object).wantReceipt(t, 200, object)
	l.wantStored(t, "a", object)
	await(t, "the damage is closed", func() (bool, string) {
		_, err := status.Get(t.Context(), key)
		return errors.Is(err, jetstream.ErrKeyNotFound), fmt.Sprint(err)
	})
	l.awaitLedger(t, "camera", wire.StepDamaged, func(s wire.Totals) bool { return s.Objects == 0 })
}

// removed leaves a gateway with a name whose object was removed by a user, or by its retention, and
// returns the port and the object.
func (l *lab) removed(t *testing.T, acknowledge, by string) (port int, object []byte) {
	t.Helper()
	port = testenv.FreePort(t)
	e := httpInstrument("camera", port)
	e.Acknowledge = acknowledge
	l.declare(t, e)
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	awaitListening(t, port)
	object = random(1, 300_000)
	put(in(port, "camera", "a"), object).wantReceipt(t, 201, object)
	l.awaitMarked(t, "a")
	n := l.notices(t)[0]
	l.awaitListed(t, n)
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	lose["deleted"](t, l, n.Key)
	is, at := n.Record, time.Now().UTC()
	is.State, is.PurgedAt, is.ChangedBy = wire.StatePurged, &at, by
	l.list(t, is)
	g = l.start(t, gatewayOptions{})
	g.awaitReady()
	awaitListening(t, port)
	return port, object
}

// An object that was purged on purpose is not stored again.
func TestDuplicateOfWhatIsPurged(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port, object := l.removed(t, "Stored", "ops@example.org")
	put(in(port, "camera", "a"), object).wantReceipt(t, 200, object)
	if keys := l.keys(t, "o/"+l.site+"/camera/"); len(keys) != 0 {
		t.Errorf("the bytes of what was purged are kept again: %v", keys)
	}
}

// An object that expired is stored as the next version of its name when it is sent again, also
// by way of the spool, and a second duplicate repeats that.
func TestDuplicateOfWhatExpired(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]bool{"the store answers": false, "the store is away": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLabAlone(t)
			port, object := l.removed(t, "StoredOrSpooled", wire.ByRetention)
			if away {
				l.minio.Kill()
			}
			put(in(port, "camera", "a"), object).wantReceipt(t, 201, object)
			if away {
				l.minio.Start()
			}
			await(t, "it is announced as the second version", func() (bool, string) {
				notices := l.notices(t)
				return len(notices) == 2 && notices[1].Version == 2, fmt.Sprintf("%+v", notices)
			})
			second := wire.NamedKey(l.site, "camera", "a", 2)
			if digest, _ := l.digestOf(t, wire.Record{ID: second, Key: second, Size: int64(len(object))}); digest != sha256.Sum256(object) {
				t.Errorf("%s has digest %s", second, digest)
			}
			l.awaitMarked(t, "a")
			put(in(port, "camera", "a"), object).wantReceipt(t, 200, object)
			if keys := l.keys(t, "o/"+l.site+"/camera/"); len(keys) != 1 || keys[0] != second {
				t.Errorf("the bucket holds %v", keys)
			}
		})
	}
}

// An object that is due to expire is listed as purged first, and its bytes go later, for legal hold may be set meanwhile: a
// duplicate in between gets no receipt for these bytes, and is stored as the next version.
func TestDuplicateOfWhatExpires(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	e := httpInstrument("camera", port)
	e.LegalHold = true
	l.declare(t, e)
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	awaitListening(t, port)
	object := random(1, 300_000)
	put(in(port, "camera", "a"), object).wantReceipt(t, 201, object)
	l.awaitMarked(t, "a")
	l.removeDay(t, wire.DayOf(l.notices(t)[0].ReceivedAt))
	put(in(port, "camera", "a"), object).wantReceipt(t, 201, object)
	lose["deleted"](t, l, wire.NamedKey(l.site, "camera", "a", 1))
	second := wire.NamedKey(l.site, "camera", "a", 2)
	if keys := l.keys(t, "o/"+l.site+"/camera/"); len(keys) != 1 || keys[0] != second {
		t.Errorf("the bucket holds %v, want %s", keys, second)
	}
}

// removeDay says that a day is due to expire, as the archivist does.
func (l *lab) removeDay(t *testing.T, day wire.Day) {
	t.Helper()
	kv, err := l.js.KeyValue(t.Context(), wire.CursorBucket(l.site))
	if err != nil {
		t.Fatal(err)
	}
	removal := wire.Removal{Instrument: "camera", Day: day, Reason: "maxAge", By: wire.ByRetention, At: time.Now().UTC()}
	value, err := wire.Encode(removal)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Create(t.Context(), removal.Key(), value); err != nil {
		t.Fatal(err)
	}
}

// While the store is away a duplicate is taken as the first was: nothing says that the
// store has it.
func TestDuplicateWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	l := newLabAlone(t)
	port := testenv.FreePort(t)
	e := httpInstrument("camera", port)
	e.Acknowledge = "StoredOrSpooled"
	l.declare(t, e)
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	awaitListening(t, port)
	object := random(1, 300_000)
	put(in(port, "camera", "a"), object).wantReceipt(t, 201, object)
	l.awaitMarked(t, "a")
	lose["deleted"](t, l, wire.NamedKey(l.site, "camera", "a", 1))
	l.minio.Kill()
	put(in(port, "camera", "a"), object).wantReceipt(t, 201, object)
	l.minio.Start()
	await(t, "the spool is empty", func() (bool, string) {
		s, err := l.gatewayStatus(t, g.name)
		return err == nil && len(l.keys(t, wire.NamedKey(l.site, "camera", "a", 1))) == 1, fmt.Sprintf("%+v %v", s, err)
	})
	l.wantStored(t, "a", object)
	if n := len(l.notices(t)); n != 1 {
		t.Errorf("%d objects are announced, want 1", n)
	}
}
