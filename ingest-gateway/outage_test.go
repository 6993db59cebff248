// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// whole sends an object and returns the connection, unheard.
func whole(t *testing.T, port int, object []byte) *net.TCPConn {
	t.Helper()
	conn := dial(t, port)
	if _, err := conn.Write(object); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	return conn
}

func (g *gateway) awaitUnsafe(n string) {
	g.t.Helper()
	await(g.t, n+" objects have arrived and are not safe", func() (bool, string) {
		v := g.metric("substorm_gateway_unsafe_objects")
		return v == n, v
	})
}

// A gateway that is killed after it read the last byte and before the store
// answered: the sender sees a reset and no receipt, sends again, and the object
// is announced once.
func TestKillBeforeTheStoreAnswers(outer *testing.T) {
	outer.Parallel()
	t := outer // gateways outlive the subtests
	l := newLabAlone(t)
	port := testenv.FreePort(t)
	l.declare(t, tcpInstrument("camera", port))
	dir := t.TempDir()
	g := l.start(t, gatewayOptions{dir: dir})
	g.awaitReady()
	for name, size := range map[string]int{"in one request": 300_000, "in parts": 20 << 20} {
		t.Run(name, func(t *testing.T) {
			object := random(uint64(size), size)
			before := len(l.notices(t))
			l.minio.Pause()
			t.Cleanup(l.minio.Continue)
			conn := whole(t, port, object)
			defer conn.Close()
			g.awaitUnsafe("1")
			g.kill()
			if a := hear(conn); a.line != "" || !errors.Is(a.err, syscall.ECONNRESET) {
				t.Fatalf("the sender of a killed gateway hears %q, %v", a.line, a.err)
			}
			l.minio.Continue()
			g = l.start(outer, gatewayOptions{dir: dir})
			mustSend(t, port, object)
			announced := l.notices(t)[before:]
			if len(announced) != 1 || announced[0].Digest != sha256.Sum256(object) {
				t.Fatalf("announced: %+v", announced)
			}
			if digest, _ := l.digestOf(t, announced[0].Record); digest != announced[0].Digest {
				t.Errorf("in the bucket is %s", digest)
			}
			// The object that the killed gateway read is accounted for.
			l.awaitLedger(t, "camera", wire.StepReceived, func(s wire.Totals) bool {
				return s.Objects == uint64(before)+1 && len(s.Unfinished) > 0
			})
		})
	}
	if err := g.stop(); err != nil {
		t.Error(err)
	}
}

// A store or a NATS that is away for a while resets no connection; one that is away for longer
// resets those that wait, and gives no receipt, until it is back.
func TestHiccups(t *testing.T) {
	t.Parallel()
	l := newLabAlone(t)
	port := testenv.FreePort(t)
	l.declare(t, tcpInstrument("camera", port))
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	lasts := outageLasts(t)
	want := map[wire.Digest]int{}
	for i, hiccup := range []struct {
		name        string
		begin, over func()
	}{
		{"the store is paused", l.minio.Pause, l.minio.Continue},
		{"the store is killed", l.minio.Kill, l.minio.Start},
		{"NATS is killed", l.nats.Kill, l.nats.Start},
		{"NATS is paused", l.nats.Pause, l.nats.Continue},
	} {
		t.Run(hiccup.name, func(t *testing.T) {
			object := random(uint64(100+i), 400_000)
			want[sha256.Sum256(object)] = 1
			hiccup.begin()
			t.Cleanup(hiccup.over)
			noReceipt(t, port, object, lasts)
			conn := whole(t, port, object)
			defer conn.Close()
			await(t, "the object has arrived and is not safe", func() (bool, string) {
				v := g.metric("substorm_gateway_unsafe_objects")
				return v != "" && v != "0", v
			})
			if status, text := g.get("/readyz"); status != http.StatusOK {
				t.Errorf("readyz: %d %s", status, text)
			}
			hiccup.over()
			if got, want := hear(conn).receipt(t), (wire.Receipt{Digest: sha256.Sum256(object), Bytes: int64(len(object))}); got != want {
				t.Errorf("receipt %+v", got)
			}
		})
	}
	await(t, "each object is listed once", func() (bool, string) {
		listed := l.listing(t, "camera")
		return cmp.Equal(want, listed), fmt.Sprint(listed)
	})
	// An object that was sent again, since it had no receipt, may have come to the store after all.
	l.awaitLedger(t, "camera", wire.StepReceived, func(s wire.Totals) bool {
		again := l.ledger(t, "camera", wire.StepDuplicates).Objects
		return s.Objects-again == 4 && s.Acknowledged == 4 && (lasts > 0 || again == 0)
	})
}

// noReceipt sends an object again and again for a while in which no gateway may say that it is
// safe: the gateway gives up on it, and the sender sees a reset.
func noReceipt(t *testing.T, port int, object []byte, lasts time.Duration) {
	t.Helper()
	resets := 0
	for end := time.Now().Add(lasts); time.Now().Before(end); resets++ {
		if a := send(t, port, object); a.err == nil || a.line != "" {
			t.Fatalf("while nothing is safe the sender hears %q, %v", a.line, a.err)
		}
	}
	if lasts > 0 {
		t.Logf("%d resets in %v", resets, lasts)
	}
}

// Started while store and NATS are away, the gateway knows its instruments from
// its volume and is ready once both are back.
func TestStartWithoutBackends(t *testing.T) {
	t.Parallel()
	l := newLabAlone(t)
	port := testenv.FreePort(t)
	l.declare(t, tcpInstrument("camera", port))
	dir := t.TempDir()
	g := l.start(t, gatewayOptions{dir: dir})
	g.awaitReady()
	await(t, "the registry is on the volume", func() (bool, string) {
		s, err := l.gatewayStatus(t, g.name)
		return err == nil && s.Revision == 1, ""
	})
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	l.nats.Kill()
	l.minio.Kill()
	g = l.start(t, gatewayOptions{dir: dir})
	object := random(7, 100_000)
	conn := whole(t, port, object) // the port is open
	defer conn.Close()
	if status, text := g.get("/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("readyz without NATS: %d %s", status, text)
	}
	if status, text := g.get("/healthz"); status != http.StatusOK {
		t.Errorf("healthz: %d %s", status, text)
	}
	l.nats.Start()
	l.minio.Start()
	if r := hear(conn).receipt(t); r.Digest != sha256.Sum256(object) {
		t.Errorf("receipt %+v", r)
	}
	g.awaitReady()
}

// Objects that were begun are finished; a connection on which none was begun, or one that
// does not finish in time, is reset; the pod is not ready meanwhile.
func TestDrain(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	l.declare(t, tcpInstrument("camera", port))
	g := l.start(t, gatewayOptions{flags: []string{"--drain-timeout", "12s"}})
	g.awaitReady()
	object := random(1, 2_000_000)
	goesOn, stays, silent := dial(t, port), dial(t, port), dial(t, port)
	for _, conn := range []net.Conn{goesOn, stays} {
		defer conn.Close()
		if _, err := conn.Write(object[:1_000_000]); err != nil {
			t.Fatal(err)
		}
	}
	defer silent.Close()
	await(t, "three connections", func() (bool, string) {
		v := g.metric(`substorm_gateway_connections{instrument="camera"}`)
		return v == "3", v
	})
	await(t, "both have been read", func() (bool, string) {
		v := g.number("substorm_gateway_memory_used_bytes")
		return v >= 2_000_000, fmt.Sprint(v)
	})
	g.signal(syscall.SIGTERM)
	await(t, "it is not ready", func() (bool, string) {
		status, text := g.get("/readyz")
		return status == http.StatusServiceUnavailable, text
	})
	// New connections are taken for a while, and then no more.
	late := random(2, 1000)
	mustSend(t, port, late)
	await(t, "it says that it drains", func() (bool, string) {
		s, err := l.gatewayStatus(t, g.name)
		return err == nil && s.Draining, ""
	})
	if a := hear(silent); a.line != "" || !errors.Is(a.err, syscall.ECONNRESET) {
		t.Errorf("who never began hears %q, %v", a.line, a.err)
	}
	await(t, "the port is closed", func() (bool, string) {
		_, err := net.Dial("tcp", loopback(port))
		return errors.Is(err, syscall.ECONNREFUSED), ""
	})
	if _, err := goesOn.Write(object[1_000_000:]); err != nil {
		t.Fatal(err)
	}
	if err := goesOn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if r := hear(goesOn).receipt(t); r.Digest != sha256.Sum256(object) {
		t.Errorf("receipt %+v", r)
	}
	if a := hear(stays); a.line != "" || !errors.Is(a.err, syscall.ECONNRESET) {
		t.Errorf("who does not finish in time hears %q, %v", a.line, a.err)
	}
	if err := <-g.done; err != nil {
		t.Errorf("the gateway ended with %v", err)
	}
	s := l.ledger(t, "camera", wire.StepReceived)
	if s.Objects != 2 || s.Acknowledged != 2 || s.Unfinished[wire.CauseDraining] != 2 {
		t.Errorf("after the drain the ledger says %+v", s)
	}
}

// The registry changes under a running gateway.
func TestRegistryChanges(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	oldPort, newPort := testenv.FreePort(t), testenv.FreePort(t)
	camera := tcpInstrument("camera", oldPort)
	l.declare(t, camera)
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	object := random(1, 500_000)
	running := dial(t, oldPort)
	defer running.Close()
	if _, err := running.Write(object[:100_000]); err != nil {
		t.Fatal(err)
	}
	await(t, "the connection is open", func() (bool, string) {
		v := g.metric(`substorm_gateway_connections{instrument="camera"}`)
		return v == "1", v
	})

	camera.Generation, camera.Listeners[0].Port = 2, uint16(newPort)
	began := time.Now()
	revision := l.declare(t, camera)
	mustSend(t, newPort, random(2, 1000))
	t.Logf("from the registry's marker to the first receipt on the new port: %v", time.Since(began))
	l.awaitRevision(t, g.name, revision)
	if _, err := net.Dial("tcp", loopback(oldPort)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the old port answers %v", err)
	}
	// The connection that was open continues.
	if _, err := running.Write(object[100_000:]); err != nil {
		t.Fatal(err)
	}
	if err := running.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if r := hear(running).receipt(t); r.Digest != sha256.Sum256(object) {
		t.Errorf("receipt %+v", r)
	}

	// A port that another process has is a problem of the instrument that wants it.
	taken, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", ":0")
	for err == nil && (taken.Addr().(*net.TCPAddr).Port > 30_000) {
		taken.Close()
		taken, err = net.Listen("tcp", loopback(testenv.FreePort(t)))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	radar := tcpInstrument("radar", taken.Addr().(*net.TCPAddr).Port)
	status := l.awaitRevision(t, g.name, l.declare(t, camera, radar))
	if status.Problems["radar"] == "" || status.Problems["camera"] != "" {
		t.Errorf("problems %v", status.Problems)
	}

	// Removed and declared again, the instrument continues its archive.
	l.awaitRevision(t, g.name, l.declare(t))
	if _, err := net.Dial("tcp", loopback(newPort)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the port of a deleted instrument answers %v", err)
	}
	l.awaitRevision(t, g.name, l.declare(t, camera))
	mustSend(t, newPort, random(3, 1000))
	if stored := l.stored(t, "camera"); len(stored) != 3 {
		t.Errorf("the archive holds %v", stored)
	}
}
