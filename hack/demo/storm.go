// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/substorm/substorm/cli/storm"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/surge"
	"github.com/substorm/substorm/operator/surge/simulate"
)

// Kp of each three hours from 17 March 2015 on, until it rises to 5 again on the 18th. Source: GFZ Potsdam (CC BY 4.0).
var stormKp = []float64{2, 4.7, 5.7, 5.3, 7.7, 7.7, 7.3, 7.7, 6, 4.7, 4.3, 4.3}

const (
	// stormPace plays three hours in this time, so that all takes less than four minutes.
	stormPace = 18 * time.Second
	// How many feed servers and gateways there are at least while the level holds.
	stormServers, stormGateways = 3, 2
	// Requests in a second: of a calm day, and of the crowd, which comes two intervals after the level has begun: pods have 36 s to get ready.
	calmRate, crowdRate      = 8, 32
	crowdFrom, crowdTo       = 5, 8
	stormPicture, stormLevel = "storm.svg", "storm"
	// stormLook is how often a line is printed.
	stormLook = 3 * time.Second
)

var stormBegan = time.Date(2015, 3, 17, 0, 0, 0, 0, time.UTC)

// storm shows that there are more feed servers and gateways before the crowd comes.
func (d *demo) storm(ctx context.Context) (err error) {
	for _, step := range []func(context.Context) error{d.tools, d.cluster, d.program, d.install, d.declare} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	addresses, err := d.onNodes(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if calm := d.endStorm(context.WithoutCancel(ctx)); err == nil {
			err = calm
		}
	}()
	camera, err := d.film(ctx)
	if err != nil {
		return err
	}
	readers := newReaders(addresses)
	if err := readers.wait(ctx); err != nil {
		return err
	}
	if err := d.waitCalm(ctx); err != nil {
		return err
	}
	began := time.Now().Truncate(time.Second)
	if err := d.declareStorm(ctx, began); err != nil {
		return err
	}
	fmt.Printf("\nThree hours of 17 March 2015 pass in %v. Kp is known once its three hours are over. The crowd comes at %s and goes at %s, and the camera\n"+
		"sends faster meanwhile: when they come is made up. Floors, and pods that are ready, are those of feed servers and of gateways.\n\n%-6s %5s %-7s %-7s %-7s %7s %8s %7s %9s\n",
		stormPace, clock(crowdFrom*3*time.Hour), clock(crowdTo*3*time.Hour), "time", "Kp", "level", "floors", "ready", "asked/s", "refused", "failed", "receipts")
	seen, err := d.watchStorm(ctx, began, readers, camera)
	if err != nil {
		return err
	}
	if err := d.nothingLost(ctx, camera); err != nil {
		return err
	}
	if err := d.show(ctx, d.kubectl, "get", "events", "--field-selector", "involvedObject.kind=Site", "--sort-by=.lastTimestamp"); err != nil {
		return err
	}
	picture := filepath.Join(d.dir, stormPicture)
	if err := os.WriteFile(picture, drawStorm(seen), 0o644); err != nil {
		return err
	}
	d.p.Line("the picture of it is in %s; the cluster stays up, `make demo-down` removes it", picture)
	return verdict(seen)
}

func clock(since time.Duration) string { return stormBegan.Add(since).Format("15:04") }

// declareStorm has the Site play what was recorded, from now on.
func (d *demo) declareStorm(ctx context.Context, began time.Time) error {
	var data strings.Builder
	data.WriteString("time,kp\n")
	for i, kp := range stormKp {
		fmt.Fprintf(&data, "%s,%g\n", stormBegan.Add(time.Duration(i)*3*time.Hour).Format(time.RFC3339), kp)
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{
		"spaceWeather": map[string]any{"sources": []any{map[string]any{"name": "recorded", "type": "Recorded", "recorded": map[string]any{
			"data": data.String(), "startTime": began.UTC().Format(time.RFC3339), "speedUp": int(3 * time.Hour / stormPace)}}}},
		"surge": map[string]any{"hold": "10s", "releaseInterval": "5s", "levels": []any{map[string]any{
			"name": stormLevel, "anyOf": []any{map[string]any{"allOf": []any{map[string]any{"quantity": "Kp", "atLeast": "5"}}}},
			"floors": []any{map[string]any{"kind": "FeedServer", "replicas": stormServers}, map[string]any{"kind": "IngestGateway", "replicas": stormGateways}}}}},
	}})
	if err != nil {
		return err
	}
	return d.show(ctx, d.kubectl, "patch", "site", "demo", "--type=merge", "-p", string(patch))
}

// waitCalm waits until the pods of an earlier storm have gone: else nothing is to be seen.
func (d *demo) waitCalm(ctx context.Context) error {
	return await(ctx, func() error {
		current := moment{}
		if err := d.pods(ctx, &current); err != nil || !current.hasGrown() {
			return err
		}
		return fmt.Errorf("%d feed servers and %d gateways are ready before the level begins, so the storm would show no growth: reset spec.replicas", current.ready.servers, current.ready.gateways)
	})
}

// endStorm removes what declareStorm declared.
func (d *demo) endStorm(ctx context.Context) error {
	for resource, patch := range map[string]string{
		"site": `{"spec":{"spaceWeather":null,"surge":null}}`, "feedserver": `{"spec":{"service":{"type":"ClusterIP"}}}`,
	} {
		if _, err := d.output(ctx, d.kubectl, "patch", resource, "demo", "--type=merge", "-p", patch); err != nil {
			return err
		}
	}
	_, err := d.output(ctx, d.kubectl, "-n", namespace, "delete", "instrument", stormCamera, "--ignore-not-found") // what it sent stays
	return err
}

// onNodes has the feed servers listen on a port of each node, and returns where.
func (d *demo) onNodes(ctx context.Context) (addresses []string, err error) {
	if _, err := d.output(ctx, d.kubectl, "patch", "feedserver", "demo", "--type=merge", "-p", `{"spec":{"service":{"type":"NodePort"}}}`); err != nil {
		return nil, err
	}
	var service corev1.Service
	err = await(ctx, func() error {
		if err := d.read(ctx, &service, "service", feedServers); err != nil || service.Spec.Type == corev1.ServiceTypeNodePort {
			return err
		}
		return fmt.Errorf("Service %s has no node port: look at `kubectl describe feedserver demo`", feedServers)
	})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort > 0 })
	var nodes corev1.NodeList
	if err := d.read(ctx, &nodes, "nodes"); err != nil {
		return nil, err
	}
	for _, node := range nodes.Items {
		for _, a := range node.Status.Addresses {
			if a.Type == corev1.NodeInternalIP && i >= 0 {
				addresses = append(addresses, fmt.Sprintf("http://%s:%d", a.Address, service.Spec.Ports[i].NodePort))
			}
		}
	}
	if len(addresses) == 0 {
		return nil, fmt.Errorf("cannot reach the feed servers from here: Service %s has the ports %v", feedServers, service.Spec.Ports)
	}
	return addresses, nil
}

// read decodes what kubectl has of a resource.
func (d *demo) read(ctx context.Context, into any, args ...string) error {
	out, err := d.output(ctx, append([]string{d.kubectl, "get", "-o", "json"}, args...)...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), into)
}

// pools are figures of the feed servers and of the gateways.
type pools struct{ servers, gateways int32 }

func (p pools) String() string { return fmt.Sprintf("%d, %d", p.servers, p.gateways) }

// moment is what was seen at one.
type moment struct {
	since    time.Duration // in times of the record
	kp       string
	level    string
	floor    pools
	ready    pools
	asked    counts
	receipts int
}

// hasGrown says whether as many pods are ready as the level asks for.
func (m *moment) hasGrown() bool {
	return m.ready.servers >= stormServers && m.ready.gateways >= stormGateways
}

// watchStorm plays the storm with its readers, and prints a line of each moment.
func (d *demo) watchStorm(ctx context.Context, began time.Time, readers *readers, camera *filming) (seen []moment, err error) {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	readers.take() // from now on
	go readers.run(asking)
	tick := time.NewTicker(stormLook)
	defer tick.Stop()
	for told := false; ; {
		interval := int(time.Since(began) / stormPace)
		readers.rate.Store(calmRate)
		if interval >= crowdFrom && interval < crowdTo {
			readers.rate.Store(crowdRate)
			camera.hurry(ctx)
		}
		current, err := d.moment(ctx, began, readers, camera)
		if err != nil {
			return nil, err
		}
		seen = append(seen, current)
		fmt.Printf("%-6s %5s %-7s %-7s %-7s %7.0f %8d %7d %9d\n", clock(current.since), current.kp, current.level, current.floor, current.ready,
			current.asked.perSecond(), current.asked.refused, current.asked.failed, current.receipts)
		if !told && current.level == stormLevel && current.hasGrown() {
			told = true
			if err := d.show(ctx, d.kubectl, "get", "site", "demo"); err != nil {
				return nil, err
			}
			fmt.Println()
		}
		if interval >= len(stormKp) || interval > crowdTo && current.floor == (pools{}) {
			return seen, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (d *demo) moment(ctx context.Context, began time.Time, readers *readers, camera *filming) (current moment, err error) {
	var site v1alpha1.Site
	if err := d.read(ctx, &site, "site", "demo"); err != nil {
		return current, err
	}
	if err := d.pods(ctx, &current); err != nil {
		return current, err
	}
	current.since = time.Duration(float64(time.Since(began)) / float64(stormPace) * float64(3*time.Hour))
	current.kp, current.asked = "?", readers.take()
	if known := int(current.since/(3*time.Hour)) - 1; known >= 0 {
		current.kp = fmt.Sprintf("%.1f", stormKp[min(known, len(stormKp)-1)])
	}
	if s := site.Status.Surge; s != nil {
		current.level = s.Level
		for _, f := range s.Floors {
			if f.Kind == v1alpha1.SurgePoolFeedServer {
				current.floor.servers = f.Replicas
			} else {
				current.floor.gateways = f.Replicas
			}
		}
	}
	current.receipts, err = camera.receipts()
	return current, err
}

// pods says how many are ready.
func (d *demo) pods(ctx context.Context, current *moment) error {
	var servers appsv1.Deployment
	var gateways appsv1.StatefulSet
	if err := d.read(ctx, &servers, "deployment", feedServers); err != nil {
		return err
	}
	if err := d.read(ctx, &gateways, "statefulset", "demo"); err != nil {
		return err
	}
	current.ready = pools{servers.Status.ReadyReplicas, gateways.Status.ReadyReplicas}
	return nil
}

// drawStorm is the picture.
func drawStorm(seen []moment) []byte {
	p := storm.Picture{Title: "A storm on real pods", Shown: simulate.Span{From: stormBegan, To: stormBegan.Add(seen[len(seen)-1].since)}}
	servers, gateways := storm.Run{Name: "feed servers"}, storm.Run{Name: "gateways"}
	for i, kp := range stormKp {
		from := stormBegan.Add(time.Duration(i) * 3 * time.Hour)
		p.Kp = append(p.Kp, surge.Sample{From: from, To: from.Add(3 * time.Hour), Value: kp})
	}
	for _, point := range seen {
		at := stormBegan.Add(point.since)
		servers.Points = append(servers.Points, simulate.Point{At: at, Ready: point.ready.servers})
		gateways.Points = append(gateways.Points, simulate.Point{At: at, Ready: point.ready.gateways})
		p.Asked = append(p.Asked, storm.Asked{At: at, PerSecond: point.asked.perSecond(), Unserved: point.asked.unserved()})
	}
	p.Runs = []storm.Run{servers, gateways}
	return p.SVG()
}

// verdict is an error if it was not as it should be.
func verdict(seen []moment) error {
	level := slices.IndexFunc(seen, func(point moment) bool { return point.level == stormLevel })
	grown := slices.IndexFunc(seen, func(point moment) bool { return point.level == stormLevel && point.hasGrown() })
	crowd := slices.IndexFunc(seen, func(point moment) bool { return point.since >= crowdFrom*3*time.Hour })
	failed := 0
	for _, point := range seen {
		failed += point.asked.failed
	}
	switch last := seen[len(seen)-1]; {
	case level < 0:
		return fmt.Errorf("level %s never began: look at `kubectl describe site demo`", stormLevel)
	case seen[0].hasGrown():
		return fmt.Errorf("%d feed servers and %d gateways were ready before the level began, so the storm shows no growth: reset spec.replicas", stormServers, stormGateways)
	case grown < 0:
		return fmt.Errorf("%d feed servers and %d gateways were never ready while the level held", stormServers, stormGateways)
	case crowd < grown:
		return fmt.Errorf("the crowd came before %d feed servers and %d gateways were ready: this machine is too busy, try again", stormServers, stormGateways)
	case failed > 0:
		return fmt.Errorf("%d requests were answered with neither 200 nor 429", failed)
	case last.floor != pools{}:
		return fmt.Errorf("the floors are still %v after the storm", last.floor)
	default:
		fmt.Printf("\nThe level began at %s, %d feed servers and %d gateways were ready at %s, and the crowd came at %s.\n",
			clock(seen[level].since), stormServers, stormGateways, clock(seen[grown].since), clock(seen[crowd].since))
		return nil
	}
}
