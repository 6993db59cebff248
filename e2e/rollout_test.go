// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const rolloutManifest = `
apiVersion: substorm.dev/v1alpha1
kind: IngestGateway
metadata: {name: second}
spec:
  siteRef: {name: demo}
  replicas: 2
  ports: {first: 30401, last: 30401}
---
apiVersion: substorm.dev/v1alpha1
kind: Feed
metadata: {name: frames}
spec:
  siteRef: {name: demo}
  messageTypes: [Notices]
---
apiVersion: substorm.dev/v1alpha1
kind: FeedConsumer
metadata: {name: viewer}
spec:
  feedRef: {name: frames}
  filter: {instrumentNames: [rollout-first, rollout-second]}
  delivery: {type: WebSocket}
`

// TestRollout replaces every program by another build while two pools receive: no sender is without a receipt, the consumer
// misses nothing, and the second pool waits for the first. It runs after all other tests: its build stays.
func TestRollout(t *testing.T) {
	l := theLab
	l.apply(t, rolloutManifest)
	l.apply(t, instrumentTCP("rollout-first", 30141)+"  gatewayRef: {name: demo}\n")
	l.apply(t, instrumentTCP("rollout-second", 30401)+"  gatewayRef: {name: second}\n")
	l.waitReady(t, "ingestgateway/second", "instrument/rollout-first", "instrument/rollout-second", "feed/frames", "feedconsumer/viewer")
	if err := l.show("env", "VERSION=next", "go", "run", "./hack/cluster", "--name", clusterName, "load",
		"operator", "ingest-gateway", "archivist", "feed-server"); err != nil {
		t.Fatal(err)
	}
	viewer := l.follow(t, "frames", "viewer")
	nodes, reports, ends := l.nodeAddresses(t), map[string]string{}, map[string]func() int{}
	for instrument, port := range map[string]int{"rollout-first": 30141, "rollout-second": 30401} {
		reports[instrument] = filepath.Join(t.TempDir(), "receipts.jsonl")
		ends[instrument] = l.sendingObjects(t, join(nodes, port), reports[instrument])
		l.waitObjects(t, reports[instrument], 1)
	}

	if err := l.show(l.helmBin, "upgrade", "substorm", "charts/substorm", "--namespace", namespace, "--reuse-values",
		"--set", "image.tag=next", "--wait", "--timeout", patienceText); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return l.firstBeforeSecond(t) })
	l.waitReady(t, "ingestgateway/demo", "ingestgateway/second", "site/demo")
	eventually(t, func() error { return l.allRun(t, "next") })
	digests := map[string]bool{}
	for instrument, report := range reports {
		objects := ends[instrument]()
		receipts := readReport(t, report)
		if len(receipts) != objects {
			t.Errorf("the sender of %s holds %d receipts, want %d", instrument, len(receipts), objects)
		}
		for _, r := range receipts {
			digests[r.SHA256] = true
		}
		eventually(t, func() error { return l.compareObjects(t, instrument, receipts) })
	}
	eventually(t, func() error { return viewer.hasNotices(digests) })
	if viewer.connections() < 2 {
		t.Error("the consumer never lost its feed server: nothing was tried")
	}
}

// firstBeforeSecond is nil once every gateway pod runs the next build. A pod of the second pool that runs it while the first
// pool is not done is a failure of the test.
func (l *lab) firstBeforeSecond(t testing.TB) error {
	t.Helper()
	waiting := map[string]int{}
	begun := false // of the second pool
	for _, p := range l.gateways(t) {
		pool := p.Labels["app.kubernetes.io/instance"]
		next := strings.HasSuffix(p.Spec.Containers[0].Image, ":next")
		if !next || !podReady(&p) {
			waiting[pool]++
		}
		begun = begun || pool == "second" && next
	}
	if begun && waiting["demo"] > 0 {
		t.Fatalf("pool second has begun to run the next build while %d pods of pool demo do not", waiting["demo"])
	}
	if len(waiting) > 0 {
		return fmt.Errorf("pods that do not run the next build, by pool: %v", waiting)
	}
	return nil
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// allRun is nil once every pod of ours runs images of one tag.
func (l *lab) allRun(t testing.TB, tag string) error {
	t.Helper()
	var pods corev1.PodList
	l.getJSON(t, &pods, "pods", "-l", "app.kubernetes.io/part-of=substorm,app.kubernetes.io/name in (operator,substorm,ingest-gateway,archivist,feed-server)")
	programs := map[string]bool{}
	for _, p := range pods.Items {
		image := p.Spec.Containers[0].Image
		if p.Status.Phase == corev1.PodRunning && !strings.HasSuffix(image, ":"+tag) {
			return fmt.Errorf("pod %s runs %s", p.Name, image)
		}
		program, _, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
		programs[program] = true
	}
	if len(programs) != 4 {
		return fmt.Errorf("%v run, want operator, ingest-gateway, archivist and feed-server", programs)
	}
	return nil
}
