// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"syscall"
	"testing"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// A gateway that is killed before its receipt, with the object stored or not: the run sends it again, and there is one.
func TestMirroredAfterKill(outer *testing.T) {
	outer.Parallel()
	t := outer // gateways outlive the subtests
	l := newLabAlone(t)
	l.declareMirrors(t, pull("north", "arctic"))
	guest := l.declareGuest(t, "north", "arctic", "allsky-1")
	dir := t.TempDir()
	g := l.start(t, gatewayOptions{dir: dir, flags: mirrorFlags})
	g.awaitReady()
	at := l.awaitMirror(t, g)
	r := l.newRun(t, "north")
	first := random(1, 100)
	r.put(at, guest, mirrored(first, "first.jpg"), first).wantReceipt(t, 201, first)
	objects := uint64(1)
	for _, c := range []struct {
		name   string
		stored bool
		status int
	}{{"before it is stored", false, 201}, {"before it is announced", true, 200}} {
		t.Run(c.name, func(t *testing.T) {
			object := random(7, 300_000)
			m := mirrored(object, c.name)
			before := len(l.notices(t))
			t.Cleanup(l.minio.Continue)
			t.Cleanup(l.nats.Continue)
			if c.stored {
				object, m = r.storeUnannounced(l, g, at, guest)
			} else {
				l.minio.Pause()
				client := r.client(at)
				go func() { putMirrored(outer, client, at, "north", guest, m, bytes.NewReader(object)) }()
				g.awaitUnsafe("1")
			}
			g.kill()
			if !c.stored { // what waits in MinIO's sockets may be the whole object
				l.minio.Kill()
				l.minio.Start()
			}
			l.nats.Continue()
			g = l.start(outer, gatewayOptions{dir: dir, flags: mirrorFlags})
			g.awaitReady()
			at = l.awaitMirror(t, g)
			r.put(at, guest, m, object).wantReceipt(t, c.status, object)
			r.put(at, guest, m, object).wantReceipt(t, 200, object)
			objects++
			if announced := l.notices(t)[before:]; len(announced) != 1 || announced[0].Digest != sha256.Sum256(object) || announced[0].Path != m.Path {
				t.Fatalf("announced: %+v", announced)
			}
			for _, step := range []wire.Step{wire.StepReceived, wire.StepAnnounced} {
				l.awaitLedger(t, guest, step, func(s wire.Totals) bool { return s.Objects == objects })
			}
		})
	}
	if err := g.stop(); err != nil {
		t.Error(err)
	}
}

// With the store, or JetStream, away the run gets a Retry-After, nothing goes to the spool, and later it is taken.
func TestMirrorOutages(t *testing.T) {
	t.Parallel()
	l := newLabAlone(t)
	l.declareMirrors(t, pull("north", "arctic"))
	guest := l.declareGuest(t, "north", "arctic", "allsky-1")
	g := l.start(t, gatewayOptions{flags: append([]string{"--log-level", "info"}, mirrorFlags...)})
	g.awaitReady()
	at := l.awaitMirror(t, g)
	r := l.newRun(t, "north")
	first := random(1, 100)
	r.put(at, guest, mirrored(first, "first.jpg"), first).wantReceipt(t, 201, first)
	object := random(2, 5000)
	for name, away := range map[string]interface {
		Pause()
		Continue()
	}{"store": l.minio, "nats": l.nats} {
		away.Pause()
		t.Cleanup(away.Continue)
		a := putMirrored(t, r.client(at), at, "north", guest, mirrored(object, name), bytes.NewReader(object))
		if a.status != 503 || a.header.Get("Retry-After") == "" || a.header.Get("Repr-Digest") != "" {
			t.Errorf("with the %s away: %v", name, a)
		}
		away.Continue()
		await(t, "the object is taken again", func() (bool, string) {
			a := putMirrored(t, r.client(at), at, "north", guest, mirrored(object, name), bytes.NewReader(object))
			return a.status == 201 || a.status == 200, a.String()
		})
		m := mirrored(object, name)
		if _, err := l.store.Head(t.Context(), m.Origin.ObjectID("hub", guest, m.ReceivedAt, m.Digest)); errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("%s is receipted, and not stored", name)
		}
	}
	if n := g.number("substorm_gateway_spool_objects"); n != 0 || g.number(`substorm_gateway_spooled_total{instrument="`+guest+`"}`) != 0 {
		t.Errorf("%v objects went to the spool", n)
	}
	for _, step := range []wire.Step{wire.StepReceived, wire.StepAnnounced} {
		l.awaitLedger(t, guest, step, func(s wire.Totals) bool { return s.Objects == 3 })
	}
}

// Two runs bring an object at once, through two gateways and through one: it is kept once, and all of them have a receipt.
func TestMirroredAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.declareMirrors(t, pull("north", "arctic"))
	guest := l.declareGuest(t, "north", "arctic", "allsky-1")
	r := l.newRun(t, "north")
	var at []wire.MirrorListener
	for _, name := range []string{"north-0", "north-1"} {
		g := l.start(t, gatewayOptions{name: name, flags: mirrorFlags})
		g.awaitReady()
		at = append(at, l.awaitMirror(t, g))
	}
	first := random(1, 100)
	for _, to := range at {
		r.put(to, guest, mirrored(first, "first.jpg"), first)
	}
	clients := []*http.Client{r.client(at[0]), r.client(at[0]), r.client(at[1]), r.client(at[1])}
	const rounds = 25
	for round := range rounds {
		object := random(uint64(100+round), 3000)
		replies := make([]reply, len(clients))
		var runs sync.WaitGroup
		for i, client := range clients {
			runs.Go(func() {
				replies[i] = putMirrored(t, client, at[i/2], "north", guest, mirrored(object, fmt.Sprintf("%d.jpg", round)), bytes.NewReader(object))
			})
		}
		runs.Wait()
		created := 0
		for _, a := range replies {
			if a.status == http.StatusCreated {
				created++
			}
			a.wantReceipt(t, a.status, object)
		}
		if created != 1 {
			t.Fatalf("round %d: %d say that it is new", round, created)
		}
	}
	if n := len(l.noticesOf(t, guest)); n != rounds+1 {
		t.Errorf("%d notices of %d objects", n, rounds+1)
	}
	if n := len(l.keys(t, "o/")); n != rounds+1 {
		t.Errorf("%d objects in the bucket", n)
	}
	for _, step := range []wire.Step{wire.StepReceived, wire.StepAnnounced} {
		l.awaitLedger(t, guest, step, func(s wire.Totals) bool { return s.Objects == rounds+1 })
	}
}

// A gateway that is stopped finishes what a run had begun to send, and no longer reports where it is.
func TestMirrorDrains(t *testing.T) {
	t.Parallel()
	l, g, at, guest, r := pulling(t)
	first, object := random(1, 100), random(2, 200_000)
	r.put(at, guest, mirrored(first, "first.jpg"), first).wantReceipt(t, 201, first)
	body, send := io.Pipe()
	answers := make(chan reply, 1)
	client := r.client(at)
	go func() { answers <- putMirrored(t, client, at, "north", guest, mirrored(object, "slow.jpg"), body) }()
	if _, err := send.Write(object[:100_000]); err != nil {
		t.Fatal(err)
	}
	await(t, "the first half has arrived", func() (bool, string) {
		s := g.metric(`substorm_gateway_http_requests{instrument="` + guest + `"}`)
		return s == "1", s
	})
	g.signal(syscall.SIGTERM)
	await(t, "the gateway drains", func() (bool, string) {
		status, err := l.gatewayStatus(t, g.name)
		return err == nil && status.Draining && status.Mirror == nil, fmt.Sprintf("%+v, %v", status, err)
	})
	await(t, "it takes no more", func() (bool, string) {
		a := putMirrored(t, r.client(at), at, "north", guest, mirrored(first, "later.jpg"), bytes.NewReader(first))
		return a.err != nil, a.String()
	})
	if _, err := send.Write(object[100_000:]); err != nil {
		t.Fatal(err)
	}
	_ = send.Close()
	(<-answers).wantReceipt(t, 201, object)
	if err := <-g.done; err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	for _, step := range []wire.Step{wire.StepReceived, wire.StepAnnounced} {
		l.awaitLedger(t, guest, step, func(s wire.Totals) bool { return s.Objects >= 2 })
	}
}
