// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/archivist/dayclose"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// reports returns what all gateways last reported.
func (l *lab) reports(t *testing.T) (all []wire.GatewayStatus) {
	t.Helper()
	kv, err := l.js.KeyValue(t.Context(), wire.StatusBucket(l.site))
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Entries(t.Context(), l.js, kv, wire.GatewayStatusKey("*"), func(e jetstream.KeyValueEntry) error {
		status, err := wire.Decode[wire.GatewayStatus](e.Value())
		all = append(all, status)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A pod that was deleted by force and recreated on another volume does not make the spool of the
// first look empty, neither while that one still runs nor when it is gone.
func TestSpoolOfTwin(t *testing.T) {
	t.Parallel()
	l := newLabAlone(t)
	ports := []int{testenv.FreePort(t), testenv.FreePort(t)}
	first := l.start(t, gatewayOptions{})
	l.awaitRevision(t, first.name, l.declare(t, spoolingCamera(ports[0], "StoredOrSpooled")))
	awaitListening(t, ports[0])
	l.minio.Kill()
	object := random(1, 100_000)
	send(t, ports[0], object).receipt(t)
	held := func(what string) {
		t.Helper()
		await(t, what, func() (bool, string) {
			_, waits := dayclose.Horizon(time.Now(), l.reports(t))
			return strings.Contains(waits, "holds 1 objects in its spool"), waits
		})
	}
	held("the first pod reports what its spool holds")
	// The second one listens elsewhere, as it would on another node.
	l.declare(t, spoolingCamera(ports[1], "StoredOrSpooled"))
	l.start(t, gatewayOptions{})
	await(t, "two pods report", func() (bool, string) {
		reports := l.reports(t)
		incarnations := map[string]bool{}
		for _, r := range reports {
			incarnations[r.Incarnation] = true
		}
		return len(reports) == 2 && len(incarnations) == 2, ""
	})
	held("both report: the first still holds up the days")
	for _, r := range l.reports(t) {
		if r.Gateway == "north-0" && r.Spool.Objects != 0 {
			t.Errorf("the pod that started last is not the one that reports under the name: %+v", r)
		}
	}
	first.kill()
	held("the first is gone with its spool")
	again := l.start(t, gatewayOptions{dir: first.dir}) // it comes back, and started last
	await(t, "the first volume's report is that of the name, and the only one", func() (bool, string) {
		named, ok := wire.GatewayStatus{}, true
		reports := l.reports(t)
		for _, r := range reports {
			if r.Gateway == again.name {
				named = r
			}
		}
		for _, r := range reports {
			ok = ok && (r.Gateway == again.name || r.Volume != named.Volume)
		}
		return ok && len(reports) == 2 && named.Spool != nil && named.Spool.Objects == 1, fmt.Sprintf("%+v", reports)
	})
	held("and it still holds up the days")
}
