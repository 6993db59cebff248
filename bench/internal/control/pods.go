// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/wire"
)

// cadence at which the Instruments' data comes.
const cadence = time.Minute

// feedServers are how many pods of feed-server report.
const feedServers = 2

// pods stand for the pods of pools and feed servers: they report, and receive nothing.
type pods struct {
	client client.Client
	js     jetstream.JetStream
	site   string
	size   Size
}

// start makes the pods, and lets them report until ctx ends.
func (p *pods) start(ctx context.Context, seen *Seen) error {
	err := Many(p.size.Gateways, func(i int) error {
		pod := readyPod(gatewayName(i))
		if err := p.client.Create(ctx, pod); err != nil {
			return err
		}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		return p.client.Status().Update(ctx, pod)
	})
	if err != nil {
		return err
	}
	go p.rollOut(ctx)
	status, err := p.statusBucket(ctx)
	if err != nil {
		return err
	}
	if err := seen.watchRegistry(ctx, p.site); err != nil {
		return err
	}
	started := time.Now()
	for i := range p.size.Gateways {
		go p.gateway(ctx, status, seen, i, started)
	}
	for i := range feedServers {
		pod := fmt.Sprintf("feed-server-%d", i)
		go every(ctx, wire.GatewayReportInterval, func() {
			put(ctx, status, wire.FeedServerStatusKey(pod), wire.FeedServerStatus{Pod: pod, FeedServer: p.site,
				Incarnation: "one", StartedAt: started, ReportedAt: time.Now(), Revision: seen.revision.Load()})
		})
	}
	return nil
}

// statusBucket waits until the operator has made the buckets.
func (p *pods) statusBucket(ctx context.Context) (kv jetstream.KeyValue, err error) {
	Within(ctx, time.Minute, func() bool {
		_, registry := p.js.KeyValue(ctx, wire.RegistryBucket(p.site))
		kv, err = p.js.KeyValue(ctx, wire.StatusBucket(p.site))
		err = errors.Join(registry, err)
		return err == nil
	})
	return kv, err
}

// gateway reports of itself each interval, and of each of its Instruments each cadence.
func (p *pods) gateway(ctx context.Context, status jetstream.KeyValue, seen *Seen, number int, started time.Time) {
	pool := gatewayName(number)
	pod := pool + "-0"
	go every(ctx, wire.GatewayReportInterval, func() {
		put(ctx, status, wire.GatewayStatusKey(pod), wire.GatewayStatus{Gateway: pod, Pool: pool, Incarnation: "one", StartedAt: started, ReportedAt: time.Now(),
			Revision: seen.revision.Load(), Datapath: "Kernel"})
	})
	mine := (p.size.Instruments - number + p.size.Gateways - 1) / p.size.Gateways
	for objects := uint64(1); mine > 0 && ctx.Err() == nil; objects++ {
		for i := range mine {
			now := time.Now()
			name := instrumentName(number + i*p.size.Gateways)
			put(ctx, status, wire.InstrumentStatusKey(name, pod), wire.InstrumentStatus{ReportedAt: now, LastReceived: now, Day: wire.DayOf(now), Objects: objects, Bytes: objects << 18})
			time.Sleep(cadence / time.Duration(mine))
		}
	}
}

func put(ctx context.Context, kv jetstream.KeyValue, key string, record any) {
	data, err := wire.Encode(record)
	if err == nil {
		_, err = kv.Put(ctx, key, data)
	}
	if err != nil && ctx.Err() == nil {
		Said("report %s: %v", key, err)
	}
}

// rollOut says of Deployments what a cluster would.
func (p *pods) rollOut(ctx context.Context) {
	every(ctx, time.Second, func() {
		var all appsv1.DeploymentList
		if p.client.List(ctx, &all) != nil {
			return
		}
		for i := range all.Items {
			d := &all.Items[i]
			if d.Status.ObservedGeneration == d.Generation {
				continue
			}
			n := *d.Spec.Replicas
			d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, ReadyReplicas: n, UpdatedReplicas: n, AvailableReplicas: n}
			_ = p.client.Status().Update(ctx, d) // else the next time
		}
	})
}

func every(ctx context.Context, interval time.Duration, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
