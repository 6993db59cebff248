// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const archivistLabel = "app.kubernetes.io/name=archivist"

// TestArchivistFails kills the archivist that holds the lease, and cuts off the node of its successor, while a camera sends: the sender
// gets its receipts as always, another archivist takes over, and at the end each object is listed once.
func TestArchivistFails(t *testing.T) {
	l := theLab
	l.apply(t, instrumentTCP("archivist-camera", 30118))
	l.waitReady(t, "instrument/archivist-camera", "site/demo")
	const objects = 600
	report := filepath.Join(t.TempDir(), "receipts.jsonl")
	camera := l.start(t, l.substorm, "send", "--to", join(l.nodeAddresses(t)[:1], 30118), "--rate", "6", "--give-up-after", "5m",
		"--report", report, writeObjects(t, objects, 4<<10))
	restarts := l.gatewayRestarts(t)
	l.waitObjects(t, report, 10)

	first := l.archivist(t, time.Time{})
	killed := time.Now()
	l.cluster(t, "exec", fmt.Sprint(first.node), "--", "sh", "-c", "kill -KILL $(pidof archivist)")
	second := l.archivist(t, killed)
	t.Logf("the archivist %s was killed: %s works %.1f s later", first.pod, second.pod, second.since.Sub(killed).Seconds())

	// The first node holds the store: the archivist must work on another.
	for second.node == 1 {
		deleted := time.Now()
		l.kubectl(t, "delete", "pod", second.pod)
		second = l.archivist(t, deleted)
	}
	cut := time.Now()
	l.cluster(t, "cut", fmt.Sprint(second.node))
	third := l.archivist(t, cut)
	t.Logf("the node of the archivist %s was cut off, with a server of NATS: %s works %.1f s later", second.pod, third.pod, third.since.Sub(cut).Seconds())

	camera.succeeds(t)
	receipts := readReport(t, report)
	if len(receipts) != objects {
		t.Errorf("the sender holds %d receipts, want %d", len(receipts), objects)
	}
	l.cluster(t, "join", fmt.Sprint(second.node))
	if now := l.gatewayRestarts(t); now != restarts {
		t.Errorf("gateways were restarted: %d times, before %d", now, restarts)
	}
	l.waitReady(t, "ingestgateway/demo", "site/demo")
	eventually(t, func() error { return l.compareObjects(t, "archivist-camera", receipts) })
}

// works is an archivist that holds the lease, and since when.
type works struct {
	pod   string
	node  int
	since time.Time
}

// archivist returns the archivist that took the lease last, which must be after an instant.
func (l *lab) archivist(t testing.TB, after time.Time) (is works) {
	t.Helper()
	eventually(t, func() error {
		is = works{}
		for node := 1; node <= 3; node++ {
			for _, pod := range l.podsOn(t, archivistLabel, node) {
				if at := l.leaseTaken(pod); at.After(is.since) {
					is = works{pod, node, at}
				}
			}
		}
		if !is.since.After(after) {
			return fmt.Errorf("no archivist has taken the lease since %s", after.Format(time.RFC3339))
		}
		return nil
	})
	return is
}

// leaseTaken returns when an archivist says that it took the lease last; the zero time where its log cannot be had.
func (l *lab) leaseTaken(pod string) (last time.Time) {
	log, _ := l.tryKubectl("logs", pod, "--request-timeout=15s") // of a node that is cut off there is none
	for line := range strings.Lines(log) {
		var entry struct {
			Time    time.Time `json:"time"`
			Message string    `json:"msg"`
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Message == "this archivist took the lease" {
			last = entry.Time
		}
	}
	return last
}

func (l *lab) gatewayRestarts(t testing.TB) (n int32) {
	t.Helper()
	for _, pod := range l.gateways(t) {
		for _, c := range pod.Status.ContainerStatuses {
			n += c.RestartCount
		}
	}
	return n
}
