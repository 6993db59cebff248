// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"crypto/sha256"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/jwt/v2"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// One object, from a socket to the bucket, the stream, the ledger and back.
func TestObjectEndToEnd(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	revision := l.declare(t, tcpInstrument("camera", port))
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)

	object := random(1, 700_001)
	mustSend(t, port, object)

	notices := l.notices(t)
	if len(notices) != 1 {
		t.Fatalf("%d notices", len(notices))
	}
	n := notices[0]
	if n.Digest != sha256.Sum256(object) || n.Size != int64(len(object)) || n.MediaType != "image/jpeg" ||
		n.State != wire.StateCurrent || n.Completeness != wire.CompletenessUnverified || n.Gateway != g.name ||
		n.Instrument != "camera" || n.Key != wire.RawKey(l.site, "camera", n.ReceivedAt, n.Digest) {
		t.Errorf("notice %+v", n)
	}
	digest, _ := l.digestOf(t, n.Record)
	info, err := l.store.Head(t.Context(), n.Key)
	if err != nil || digest != n.Digest || info.ContentType != "image/jpeg" {
		t.Errorf("in the bucket: digest %s, %+v, %v", digest, info, err)
	}
	rebuilt, err := wire.NoticeFromMetadata(n.Key, info.Metadata)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(n, rebuilt); diff != "" {
		t.Errorf("the object's metadata says other than its notice (-notice +metadata):\n%s", diff)
	}
	for _, step := range []wire.Step{wire.StepReceived, wire.StepStored, wire.StepAnnounced} {
		l.awaitLedger(t, "camera", step, func(s wire.Totals) bool {
			return s.Objects == 1 && s.ObjectBytes == uint64(len(object)) && s.Digest == n.Digest
		})
	}
	if err := g.stop(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// listing returns what the archive lists for an instrument, by digest.
func (l *lab) listing(t *testing.T, instrument string) map[wire.Digest]int {
	t.Helper()
	listed := map[wire.Digest]int{}
	for day, err := range manifest.Days(t.Context(), l.store, l.site, instrument) {
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range manifest.Records(t.Context(), l.store, l.site, instrument, day) {
			if err != nil {
				t.Fatal(err)
			}
			if r.State == wire.StateCurrent {
				listed[r.Digest]++
			}
		}
	}
	return listed
}

// The whole gateway on servers as in production (operator mode, TLS both ways):
// objects and datagrams in, a manifest, a duplicate removed, all columns equal.
func TestWholeHouse(t *testing.T) {
	t.Parallel()
	l := (&lab{
		nats:  testenv.NATS(t, testenv.NATSOptions{Operator: true, TLS: true, Domain: "hub"}),
		minio: testenv.SharedMinIO(t, testenv.MinIOOptions{TLS: true}),
	}).newSite(t, "hub")
	tcpPort, udpPort := testenv.FreePort(t), testenv.FreePort(t)
	magnetometer := tcpInstrument("magnetometer", tcpPort)
	magnetometer.Instrument = "magnetometer"
	magnetometer.Listeners = []wire.ListenerEntry{{Name: "telemetry", Protocol: wire.ProtocolUDP, Port: uint16(udpPort), Channel: "raw"}}
	camera := tcpInstrument("camera", tcpPort)
	silent := camera.Listeners[0]
	silent.Name, silent.Port = "silent", uint16(testenv.FreePort(t))
	camera.Listeners = append(camera.Listeners, silent)
	revision := l.declare(t, camera, magnetometer)
	g := l.start(t, gatewayOptions{flags: []string{
		"--nats-inbox-prefix", "_INBOX_north",
		"--nats-credentials", l.nats.UserCreds(t, jwt.Permissions{}),
		"--nats-tls-dir", l.nats.CA.Dir(t, "client"), "--s3-tls-dir", l.minio.CA.Dir(t, "client"),
	}})
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)

	object := random(1, 70_000)
	mustSend(t, tcpPort, object)
	mustSend(t, tcpPort, random(2, 40_000))
	mustSend(t, tcpPort, object) // again: its receipt was lost, say
	const datagrams = 300
	conn, err := net.Dial("udp", loopback(udpPort))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i := range datagrams {
		if _, err := conn.Write(random(uint64(i), 200)); err != nil {
			t.Fatal(err)
		}
	}
	l.awaitLedger(t, "magnetometer", wire.StepReceived, func(s wire.Totals) bool { return s.Datagrams == datagrams })
	await(t, "both objects are listed, once each", func() (bool, string) {
		listed := l.listing(t, "camera")
		stored := l.stored(t, "camera")
		return len(listed) == 2 && listed[sha256.Sum256(object)] == 1 && len(stored) == 2, fmt.Sprint(listed, stored)
	})
	l.awaitLedger(t, "camera", wire.StepReceived, func(s wire.Totals) bool { return s.Objects == 3 && s.Acknowledged == 3 })
	l.awaitLedger(t, "camera", wire.StepDuplicates, func(s wire.Totals) bool { return s.Objects == 1 })

	kv, err := l.js.KeyValue(t.Context(), wire.StatusBucket(l.site))
	if err != nil {
		t.Fatal(err)
	}
	listeners := map[string]string{"camera": "frames", "magnetometer": "telemetry"}
	for name, want := range map[string]wire.InstrumentStatus{
		"camera":       {Objects: 3, Bytes: 180_000},
		"magnetometer": {Datagrams: datagrams, Bytes: datagrams * 200},
	} {
		await(t, "the report about "+name, func() (bool, string) {
			e, err := kv.Get(t.Context(), wire.InstrumentStatusKey(name, g.name))
			if err != nil {
				return false, err.Error()
			}
			s, err := wire.Decode[wire.InstrumentStatus](e.Value())
			return err == nil && s.Objects == want.Objects && s.Datagrams == want.Datagrams && s.Bytes == want.Bytes &&
				!s.LastReceived.IsZero() && s.Day != "" && len(s.Listeners) == 1 && s.Listeners[listeners[name]].Equal(s.LastReceived), fmt.Sprintf("%+v, %v", s, err)
		})
	}

	// After a restart the day's figures continue.
	if err := g.stop(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	g = l.start(t, gatewayOptions{dir: g.dir, flags: g.flags})
	mustSend(t, tcpPort, random(3, 1000))
	await(t, "the report counts what was received before the restart", func() (bool, string) {
		e, err := kv.Get(t.Context(), wire.InstrumentStatusKey("camera", g.name))
		if err != nil {
			return false, err.Error()
		}
		s, err := wire.Decode[wire.InstrumentStatus](e.Value())
		return err == nil && s.Objects == 4, fmt.Sprintf("%+v, %v", s, err)
	})
	if left, err := filepath.Glob(filepath.Join(g.dir, "scratch", "*")); err != nil || len(left) != 0 {
		t.Errorf("scratch holds %v, %v", left, err)
	}
}

// Two gateways do not share a volume.
func TestVolumeIsLocked(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.declare(t)
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	second := l.start(t, gatewayOptions{dir: g.dir, name: "north-1"})
	if err := <-second.done; err == nil {
		t.Error("a second gateway ran on the same volume")
	}
}
