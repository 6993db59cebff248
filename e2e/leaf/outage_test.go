// SPDX-License-Identifier: Apache-2.0

package leaf

import (
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// Both Sites receive, and what comes between them goes and comes back: nothing of
// what the leaf's senders sent is missing at the hub, or there twice, or out of
// order, and the hub's archive holds its own objects alone.
func TestOutage(t *testing.T) {
	t.Parallel()
	l := newLab(t, true, nil)
	minio := testenv.MinIO(t, testenv.MinIOOptions{})
	minio.Bucket(t, "hub")
	minio.Bucket(t, leafCode)
	ports := [4]int{testenv.FreePort(t), testenv.FreePort(t), testenv.FreePort(t), testenv.FreePort(t)}
	atHub := testenv.StartGateway(t, testenv.GatewayOptions{Site: hubCode, NATS: l.hub, MinIO: minio, Bucket: "hub",
		Instruments: []wire.InstrumentEntry{testenv.InstrumentTCP(camera, ports[0]), testenv.InstrumentUDP(mag, ports[1])}})
	testenv.StartGateway(t, testenv.GatewayOptions{Site: leafCode, NATS: l.leaf, MinIO: minio, Bucket: leafCode,
		Instruments: []wire.InstrumentEntry{testenv.InstrumentTCP(camera, ports[2]), testenv.InstrumentUDP(mag, ports[3])}})
	testenv.StartArchivist(t, testenv.ArchivistOptions{Site: hubCode, NATS: l.hub, MinIO: minio, Bucket: "hub"})
	testenv.StartArchivist(t, testenv.ArchivistOptions{Site: leafCode, NATS: l.leaf, MinIO: minio, Bucket: leafCode})
	hubSender := startSender(t, ports[0], ports[1])
	away := startSender(t, ports[2], ports[3])
	l.leafReceives() // what came before the leaf was declared comes, too
	testenv.AddLeaf(t, l.hub, hubCode, leafCode)

	lasts := outage(t)
	for _, o := range []struct {
		name        string
		begin, over func()
		lasts       time.Duration
	}{
		{"the link is cut", l.link.Cut, l.link.Mend, lasts},
		{"the hub's NATS is killed", l.hub.Kill, l.hub.Start, min(lasts, 20*time.Second)},
		{"the leaf's NATS is killed", l.leaf.Kill, l.leaf.Start, min(lasts, 20*time.Second)},
	} {
		began := time.Now()
		o.begin()
		time.Sleep(o.lasts)
		o.over()
		back := time.Now()
		l.leafReceives()
		l.caughtUp()
		t.Logf("%s for %v; the hub had what the leaf has %v later", o.name, back.Sub(began).Round(time.Second), time.Since(back).Round(time.Second))
	}
	hubSender.finish()
	away.finish()
	l.sameAsLeaf()
	away.compare(l.atHub(wire.NoticeStream, wire.NoticeSubjects, leafCode), l.atHub(wire.ObservationStream, wire.ObservationSubjects, leafCode))
	hubSender.compare(l.atHub(wire.NoticeStream, wire.NoticeSubjects, hubCode), l.atHub(wire.ObservationStream, wire.ObservationSubjects, hubCode))
	t.Logf("%d objects and %d datagrams of the leaf, %d and %d of the hub", len(away.objects), away.datagrams, len(hubSender.objects), hubSender.datagrams)

	for info, err := range minio.Bucket(t, "hub").List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(info.Key, "/"+leafCode+"/") {
			t.Errorf("the hub's bucket holds %s", info.Key)
		}
	}
	if log := atHub.Log(); strings.Contains(log, leafCode) {
		t.Errorf("the hub's gateway speaks of the leaf:\n%s", log)
	}
	// Nothing of the hub's went the other way.
	for _, stream := range []string{wire.ObservationStream(leafCode), wire.NoticeStream(leafCode)} {
		for _, m := range held(t, l.leaf.JetStream(t), stream, ">") {
			if !strings.Contains(m.subject, "."+leafCode+".") {
				t.Errorf("%s of the leaf holds a message on %s", stream, m.subject)
			}
		}
	}
}
