// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"crypto/sha256"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/e2e/parts"
	"github.com/substorm/substorm/internal/wire"
)

// One object, from a socket to the bucket, the stream, the ledger and back.
func TestObjectEndToEnd(t *testing.T) {
	l := newLab(t)
	port := parts.FreePort(t)
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
	digest, info := l.digestOf(t, n.Key)
	if digest != n.Digest || info.ContentType != "image/jpeg" {
		t.Errorf("in the bucket: digest %s, %+v", digest, info)
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
