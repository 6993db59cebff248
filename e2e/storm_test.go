// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	stormCamera = "storm-camera"
	stormPort   = 30135
	// stormPace plays three hours of the recorded feed in this time.
	stormPace = 15 * time.Second
	// stormFloor is how many pods both pools have at least while the level holds: one gateway and two feed servers more than without.
	stormFloor = 4
	// stormFloors is how kubectl get site tells it.
	stormFloors = "FeedServer 4, IngestGateway/demo 4"
)

// recordedKp is a source that has played a Kp of each three hours since a time.
func recordedKp(since time.Time, values []string) string {
	data, at := "time,kp\\n", time.Date(2015, 3, 17, 0, 0, 0, 0, time.UTC)
	for _, kp := range values {
		data += at.Format(time.RFC3339) + "," + kp + "\\n"
		at = at.Add(3 * time.Hour)
	}
	return fmt.Sprintf(`{"sources":[{"name":"recorded","type":"Recorded","recorded":{"data":"%s","startTime":%q,"speedUp":%d}}]}`,
		data, since.UTC().Format(time.RFC3339), 3*time.Hour/stormPace)
}

// TestStorm plays a recorded storm: the level rises, then floors, then the pods of both pools are ready, and only then the crowd comes.
// Nothing that is sent is lost, and every answer is what was asked for or 429. Once the storm is over the floors fall by one at a time,
// while readers still ask.
func TestStorm(t *testing.T) {
	l := theLab
	l.apply(t, instrumentTCP(stormCamera, stormPort)+"  gatewayRef: {name: demo}\n  access: {live: Public, archive: Public}\n") // another test leaves a second pool
	l.kubectl(t, "patch", "feedserver", "demo", "--type=merge", "-p", `{"spec":{"service":{"type":"NodePort"}}}`)
	t.Cleanup(func() {
		l.kubectl(t, "patch", "site", "demo", "--type=merge", "-p", `{"spec":{"spaceWeather":null,"surge":null}}`)
		l.kubectl(t, "patch", "feedserver", "demo", "--type=merge", "-p", `{"spec":{"service":{"type":"ClusterIP"}}}`)
		eventually(t, l.twoFeedServers)
	})
	l.waitReady(t, "instrument/"+stormCamera, "site/demo", "feedserver/demo", "ingestgateway/demo")
	eventually(t, func() error { return l.podsReady(2, 3) })
	story := l.start(t, l.kubectlBin, "-n", namespace, "get", "site", "demo", "--watch", "-o",
		`jsonpath={.status.surge.level}|{.status.surge.floors[?(@.kind=="FeedServer")].replicas}|{.status.surge.floors[?(@.kind=="IngestGateway")].replicas}{"\n"}`)

	// Calm first, until it has been reported.
	began := time.Now().Truncate(time.Second)
	played := func() int { return int(time.Since(began)/stormPace) + 1 }
	recorded := slices.Concat([]string{"2.00"}, slices.Repeat([]string{"2.33"}, 200))
	l.kubectl(t, "patch", "site", "demo", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"spaceWeather":%s,"surge":{"hold":"10s","releaseInterval":"10s","levels":[
		{"name":"storm","anyOf":[{"allOf":[{"quantity":"Kp","atLeast":"5"}]}],
		 "floors":[{"kind":"FeedServer","replicas":%d},{"kind":"IngestGateway","name":"demo","replicas":%d}]}]}}}`, recordedKp(began, recorded), stormFloor, stormFloor))
	eventually(t, func() error { return l.siteTells("", "Kp 2.", "") })
	if err := l.podsReady(2, 3); err != nil {
		t.Errorf("before the storm: %v", err)
	}

	// The recorded values continue with the storm, which lasts until the crowd has been served.
	goesOn := func(kp string) {
		recorded = slices.Concat(recorded[:max(1, played())], slices.Repeat([]string{kp}, 200))
		l.kubectl(t, "patch", "site", "demo", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"spaceWeather":%s}}`, recordedKp(began, recorded)))
	}
	goesOn("7.33")
	eventually(t, func() error { return l.siteTells("storm", "Kp 7.3 (recorded", stormFloors) })
	eventually(t, func() error { return l.podsReady(stormFloor, stormFloor) })

	// The crowd.
	readers := startCrowd(t, manner{
		clients: 6, bases: l.feedServersAtNodes(t), paths: []string{"/", "/?format=json", "/archive/" + stormCamera + "/", "/atom/" + stormCamera + ".xml"},
		pause: 50 * time.Millisecond, later: http.StatusTooManyRequests, seconds: 1,
	})
	report := filepath.Join(t.TempDir(), "receipts.jsonl")
	const objects = 400
	l.start(t, l.substorm, "send", "--quiet", "--to", join(l.nodeAddresses(t), stormPort), "--parallel", "4", "--rate", "20",
		"--report", report, writeObjects(t, objects, 16<<10)).succeeds(t)
	eventually(t, func() error { return readers.answered(http.StatusOK, 1000) })
	if err := l.siteTells("storm", "Kp 7.3 (recorded", stormFloors); err != nil {
		t.Errorf("behind the crowd: %v", err)
	}

	goesOn("1.67") // it is over
	eventually(t, func() error { return l.siteTells("", "Kp 1.7 (recorded", "") })
	eventually(t, func() error { return l.podsReady(2, 3) })
	readers.end(t)
	eventually(t, func() error { // kubectl has come to the end of it
		if told := strings.TrimSpace(story.out.String()); told[strings.LastIndex(told, "\n")+1:] != "||" {
			return fmt.Errorf("the Site tells no end of it:\n%s", told)
		}
		return nil
	})
	tellsStorm(t, story.out.String())

	receipts := readReport(t, report)
	if len(receipts) != objects {
		t.Errorf("the sender holds %d receipts, want %d", len(receipts), objects)
	}
	eventually(t, func() error { return l.compareObjects(t, stormCamera, receipts) })
}

// podsReady is nil once so many feed servers and gateways of the Site are ready, and no more.
func (l *lab) podsReady(servers, gateways int) error {
	out, err := l.tryKubectl("get", "pods", "-l", "app.kubernetes.io/instance=demo,app.kubernetes.io/name in (feed-server,ingest-gateway)", "-o",
		`jsonpath={range .items[*]}{.metadata.labels.app\.kubernetes\.io/name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
	if err != nil {
		return err
	}
	if is := []int{strings.Count(out, "feed-server True"), strings.Count(out, "ingest-gateway True")}; is[0] != servers || is[1] != gateways || strings.Contains(out, "False") {
		return fmt.Errorf("%d feed servers and %d gateways are ready, want %d and %d:\n%s", is[0], is[1], servers, gateways, out)
	}
	return nil
}

// siteTells is nil once the line of `kubectl get site` says so.
func (l *lab) siteTells(level, why, floors string) error {
	out, err := l.tryKubectl("get", "site", "demo", "-o", "wide")
	if err != nil {
		return err
	}
	lines := strings.Split(out, "\n")
	if len(lines) != 2 {
		return fmt.Errorf("kubectl get site has %d lines:\n%s", len(lines), out)
	}
	is := func(column string) string { return cell(lines[0], lines[1], column) }
	if is("LEVEL") != level || !strings.HasPrefix(is("WHY"), why) || is("FLOORS") != floors {
		return fmt.Errorf("kubectl get site does not say level %q, %q, floors %q:\n%s", level, why, floors, out)
	}
	return nil
}

// cell is what a line of a table of kubectl has in a column. Characters are counted, as kubectl does.
func cell(header, line, column string) string {
	at := regexp.MustCompile(`(^|\s)` + column + `(\s+|$)`).FindStringIndex(header)
	if at == nil {
		return "no column " + column
	}
	if at[0] > 0 {
		at[0]++
	}
	text := []rune(line)
	return strings.TrimSpace(string(text[min(at[0], len(text)):min(max(at[1], at[0]), len(text))]))
}

// tellsStorm checks the states that the Site reported in turn against the order of a storm: the level before floors or with them, both
// floors at once to their height, and down by one at a time once no level holds.
func tellsStorm(t *testing.T, told string) {
	t.Helper()
	var was [2]int
	highest, levels := [2]int{}, []string{""}
	for line := range strings.Lines(told) {
		p := strings.Split(strings.TrimSpace(line), "|")
		if len(p) != 3 {
			t.Fatalf("the Site tells %q", line)
		}
		if p[0] != levels[len(levels)-1] {
			levels = append(levels, p[0])
		}
		for i := range was {
			is, _ := strconv.Atoi(p[i+1])
			switch {
			case is > was[i] && (p[0] != "storm" || is != stormFloor):
				t.Errorf("a floor of %d at level %q", is, p[0])
			case is < was[i] && (p[0] != "" || is != was[i]-1):
				t.Errorf("a floor falls from %d to %d at level %q", was[i], is, p[0])
			}
			was[i], highest[i] = is, max(highest[i], is)
		}
	}
	if !slices.Equal(levels, []string{"", "storm", ""}) || highest != [2]int{stormFloor, stormFloor} || was != [2]int{} {
		t.Errorf("levels %q, floors up to %v and at the end %v; all that was told:\n%s", levels, highest, was, told)
	}
}

// feedServersAtNodes returns where nodes pass requests on to the feed servers.
func (l *lab) feedServersAtNodes(t *testing.T) (bases []string) {
	t.Helper()
	var service corev1.Service
	l.getJSON(t, &service, "service", "demo-feed-server")
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort > 0 })
	if i < 0 {
		t.Fatalf("the Service of the feed servers has no port on nodes: %+v", service.Spec.Ports)
	}
	for _, node := range l.nodeAddresses(t) {
		bases = append(bases, "http://"+net.JoinHostPort(node, fmt.Sprint(service.Spec.Ports[i].NodePort)))
	}
	return bases
}
