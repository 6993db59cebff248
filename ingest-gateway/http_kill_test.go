// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// A gateway that is killed after the last byte: whether the object was stored by
// then or not, the sender has no answer, sends again, and there is one object.
func TestKillAfterTheLastByteOfAName(outer *testing.T) {
	outer.Parallel()
	t := outer // gateways outlive the subtests
	l := newLabAlone(t)
	port := testenv.FreePort(t)
	l.declare(t, httpInstrument("camera", port))
	dir := t.TempDir()
	g := l.start(t, gatewayOptions{dir: dir})
	g.awaitReady()
	awaitListening(t, port)
	l.awaitNames(t) // before the store stands still
	objects := uint64(0)
	for _, c := range []struct {
		name   string
		stored bool
		status int
	}{{"before it is stored", false, 201}, {"before it is announced", true, 200}} {
		t.Run(c.name, func(t *testing.T) {
			object := random(uint64(len(c.name)), 300_000)
			name := fmt.Sprintf("frame-%d.jpg", objects)
			before := len(l.notices(t))
			t.Cleanup(l.minio.Continue)
			t.Cleanup(l.nats.Continue)
			l.minio.Pause()
			answers := make(chan reply, 1)
			go func() { answers <- put(in(port, "camera", name), object) }()
			g.awaitUnsafe("1")
			await(t, "the name is claimed", func() (bool, string) {
				kv, err := l.js.KeyValue(t.Context(), wire.NamesBucket(l.site))
				if err != nil {
					return false, err.Error()
				}
				_, err = kv.Get(t.Context(), wire.NameKey("camera", name))
				return err == nil, fmt.Sprint(err)
			})
			if c.stored {
				l.nats.Pause()
				l.minio.Continue()
				await(t, "the object is stored", func() (bool, string) {
					_, err := l.store.Head(t.Context(), wire.NamedKey(l.site, "camera", name, 1))
					return err == nil, fmt.Sprint(err)
				})
			}
			g.kill()
			if a := <-answers; a.err == nil {
				t.Fatalf("the sender of a killed gateway hears %v", a)
			}
			if !c.stored { // what waits in MinIO's sockets may be the whole object
				l.minio.Kill()
				l.minio.Start()
			}
			l.nats.Continue()
			g = l.start(outer, gatewayOptions{dir: dir})
			awaitListening(t, port)
			put(in(port, "camera", name), object).wantReceipt(t, c.status, object)
			put(in(port, "camera", name), object).wantReceipt(t, 200, object)
			objects++
			announced := l.notices(t)[before:]
			if len(announced) != 1 || announced[0].Digest != sha256.Sum256(object) || announced[0].Name != name {
				t.Fatalf("announced: %+v", announced)
			}
			if digest, _ := l.digestOf(t, announced[0].Record); digest != announced[0].Digest {
				t.Errorf("in the bucket is %s", digest)
			}
			for _, step := range []wire.Step{wire.StepReceived, wire.StepStored, wire.StepAnnounced} {
				l.awaitLedger(t, "camera", step, func(s wire.Totals) bool { return s.Objects == objects })
			}
		})
	}
	if err := g.stop(); err != nil {
		t.Error(err)
	}
}

// While JetStream is away names cannot be claimed: objects wait in the spool, and claim theirs
// while it drains. If two objects got one name meanwhile, the later one becomes its next version,
// whatever the instrument says of versions, and may be an object though its name is a folder by
// now, or be in an object: both are receipted.
func TestNamesFromTheSpool(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ports := []int{testenv.FreePort(t), testenv.FreePort(t)}
	e := httpInstrument("camera", ports[0])
	e.Listeners = append(e.Listeners, httpInstrument("camera", ports[1]).Listeners...)
	e.Acknowledge = "StoredOrSpooled"
	l.declare(t, e)
	start := func(i int, dir string) *gateway {
		g := l.start(t, gatewayOptions{name: fmt.Sprintf("north-%d", i), dir: dir, flags: []string{"--ports", fmt.Sprintf("%d-%d", ports[i], ports[i])}})
		awaitListening(t, ports[i])
		return g
	}
	dir := t.TempDir()
	first := start(0, dir)
	first.awaitReady()
	taken, same, alone := random(1, 5000), random(2, 6000), random(3, 7000)
	l.nats.Pause()
	t.Cleanup(l.nats.Continue)
	put(in(ports[0], "camera", "taken"), taken).wantReceipt(t, 201, taken)
	put(in(ports[0], "camera", "same"), same).wantReceipt(t, 201, same)
	put(in(ports[0], "camera", "alone"), alone).wantReceipt(t, 201, alone)
	folder, below := random(5, 3000), random(6, 4000)
	put(in(ports[0], "camera", "folder"), folder).wantReceipt(t, 201, folder)
	put(in(ports[0], "camera", "object/below"), below).wantReceipt(t, 201, below)
	first.kill()
	l.nats.Continue()

	second := start(1, t.TempDir())
	second.awaitReady()
	l.awaitNames(t) // else it spools, too
	other := random(4, 8000)
	put(in(ports[1], "camera", "taken"), other).wantReceipt(t, 201, other)
	put(in(ports[1], "camera", "same"), same).wantReceipt(t, 201, same)
	put(in(ports[1], "camera", "folder/below"), below).wantReceipt(t, 201, below)
	put(in(ports[1], "camera", "object"), folder).wantReceipt(t, 201, folder)
	first = start(0, dir)
	await(t, "the spool is empty", func() (bool, string) {
		s, err := l.gatewayStatus(t, "north-0")
		return err == nil && s.Incarnation != "" && first.metric("substorm_gateway_spool_objects") == "0" && len(l.notices(t)) == 8, fmt.Sprint(s, err, len(l.notices(t)))
	})
	for key, object := range map[string][]byte{
		"n/taken": other, "v/2/taken": taken, "n/same": same, "n/alone": alone,
		"v/2/folder": folder, "n/folder/below": below, "n/object": folder, "v/2/object/below": below,
	} {
		if digest, _ := l.digestOf(t, wire.Record{Key: "o/hub/camera/" + key}); digest != sha256.Sum256(object) {
			t.Errorf("under %s is another object", key)
		}
	}
	if keys := l.keys(t, "o/hub/camera/"); len(keys) != 8 {
		t.Errorf("in the bucket: %v", keys)
	}
	if n := first.number(`substorm_gateway_name_conflicts_total{instrument="camera"}`); n != 3 {
		t.Errorf("%v conflicts", n)
	}
	// All that was receipted is known again.
	put(in(ports[0], "camera", "taken"), taken).wantReceipt(t, 200, taken)
	put(in(ports[1], "camera", "alone"), alone).wantReceipt(t, 200, alone)
	put(in(ports[1], "camera", "folder"), folder).wantReceipt(t, 200, folder)
	put(in(ports[1], "camera", "object/below"), below).wantReceipt(t, 200, below)
	l.awaitLedger(t, "camera", wire.StepReceived, func(s wire.Totals) bool { return s.Objects == 8 && s.Unfinished[wire.CauseDuplicate] == 5 })
	for _, step := range []wire.Step{wire.StepStored, wire.StepAnnounced} {
		l.awaitLedger(t, "camera", step, func(s wire.Totals) bool { return s.Objects == 8 })
	}
	if err := second.stop(); err != nil {
		t.Error(err)
	}
}

// With the store, or JetStream, away and receipts that mean Stored, the sender gets a Retry-After,
// and nothing is kept of what was not receipted.
func TestHTTPOutages(t *testing.T) {
	t.Parallel()
	l := newLabAlone(t)
	port := testenv.FreePort(t)
	l.declare(t, httpInstrument("camera", port))
	g := l.start(t, gatewayOptions{flags: []string{"--log-level", "info"}})
	g.awaitReady()
	awaitListening(t, port)
	object := random(1, 5000)
	for name, away := range map[string]interface {
		Pause()
		Continue()
	}{"store": l.minio, "nats": l.nats} {
		away.Pause()
		t.Cleanup(away.Continue)
		r := put(in(port, "camera", name), object)
		if r.status != 503 || r.header.Get("Retry-After") == "" || r.header.Get("Repr-Digest") != "" {
			t.Errorf("with the %s away: %v", name, r)
		}
		away.Continue()
		await(t, "the name is to be had again", func() (bool, string) {
			r := put(in(port, "camera", name), object)
			return r.status == 201 || r.status == 200, r.String()
		})
		if _, err := l.store.Head(t.Context(), wire.NamedKey(l.site, "camera", name, 1)); errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("%s is receipted, and not stored", name)
		}
	}
}

// awaitNames waits until the archivist has seen that all names have their claims.
func (l *lab) awaitNames(t *testing.T) {
	t.Helper()
	await(t, "the names are whole", func() (bool, string) {
		kv, err := l.js.KeyValue(t.Context(), wire.NamesBucket(l.site))
		if err != nil {
			return false, err.Error()
		}
		_, err = kv.Get(t.Context(), wire.NamesListedKey)
		return err == nil, fmt.Sprint(err)
	})
}
