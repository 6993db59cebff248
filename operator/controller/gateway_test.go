// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/workload"
)

// gateway acts as a gateway pod on the bus, with the credentials that the operator issued for its pool.
type gateway struct {
	*world
	pool, pod string
	nc        *nats.Conn
	js        jetstream.JetStream
}

func (w *world) gateway(pool, pod string) *gateway {
	w.t.Helper()
	var creds []byte
	eventually(w.t, "credentials of "+pool, func() error {
		s := &corev1.Secret{}
		err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: workload.JetStreamSecret(pool)}, s)
		creds = s.Data["user.creds"]
		return err
	})
	nc, err := stream.Connect(w.t.Context(), stream.Config{Servers: []string{w.nats.URL()}, Credentials: creds,
		TLS: w.nats.ClientTLS(), InboxPrefix: workload.InboxPrefix(pool)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	if err := stream.WaitConnected(w.t.Context(), nc); err != nil {
		w.t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		w.t.Fatal(err)
	}
	return &gateway{w, pool, pod, nc, js}
}

func (g *gateway) get(bucket, key string) ([]byte, error) {
	kv, err := g.js.KeyValue(g.t.Context(), bucket)
	if err != nil {
		return nil, err
	}
	value, err := kv.Get(g.t.Context(), key)
	if err != nil {
		return nil, err
	}
	return value.Value(), nil
}

func (g *gateway) put(bucket, key string, value []byte) error {
	kv, err := g.js.KeyValue(g.t.Context(), bucket)
	if err == nil {
		_, err = kv.Put(g.t.Context(), key, value)
	}
	return err
}

// complete reads the registry's marker.
func (g *gateway) complete() (wire.RegistryComplete, error) {
	value, err := g.get(wire.RegistryBucket(g.code), wire.RegistryCompleteKey)
	if err != nil {
		return wire.RegistryComplete{}, err
	}
	return wire.Decode[wire.RegistryComplete](value)
}

// entry reads an Instrument's entry.
func (g *gateway) entry(instrument string) (wire.InstrumentEntry, error) {
	value, err := g.get(wire.RegistryBucket(g.code), wire.RegistryInstrumentKey(instrument))
	if err != nil {
		return wire.InstrumentEntry{}, err
	}
	return wire.Decode[wire.InstrumentEntry](value)
}

// awaitPort waits until an entry has a port, and returns it.
func (g *gateway) awaitPort(instrument string, port int) (entry wire.InstrumentEntry) {
	g.t.Helper()
	eventually(g.t, "registry entry of "+instrument, func() (err error) {
		if entry, err = g.entry(instrument); err != nil {
			return err
		}
		if int(entry.Listeners[0].Port) != port {
			return fmt.Errorf("its port is %d and should be %d", entry.Listeners[0].Port, port)
		}
		return nil
	})
	return entry
}

// awaitNoEntry waits until an Instrument has no entry in a complete registry.
func (g *gateway) awaitNoEntry(instrument string, count int) {
	g.t.Helper()
	eventually(g.t, "no registry entry of "+instrument, func() error {
		if _, err := g.entry(instrument); !errors.Is(err, jetstream.ErrKeyNotFound) {
			return fmt.Errorf("it is there: %v", err)
		}
		if c, err := g.complete(); err != nil || c.Count != count {
			return fmt.Errorf("the registry counts %d entries and should count %d: %v", c.Count, count, err)
		}
		return nil
	})
}

// follow reports every interval that the pod runs the newest registry, until
// the returned function is called.
func (g *gateway) follow() (stop func()) {
	g.t.Helper()
	quit, done := make(chan struct{}), make(chan struct{})
	started := time.Now()
	go func() {
		defer close(done)
		for {
			if c, err := g.complete(); err == nil {
				g.report(wire.GatewayStatus{Revision: c.Revision, StartedAt: started, Incarnation: "one"})
			}
			select {
			case <-quit:
				return
			case <-time.After(wire.GatewayReportInterval / 4):
			}
		}
	}()
	stop = func() {
		select {
		case <-quit:
		default:
			close(quit)
		}
		<-done
	}
	g.t.Cleanup(stop)
	return stop
}

func (g *gateway) report(s wire.GatewayStatus) {
	s.Gateway, s.Pool, s.Datapath, s.ReportedAt = g.pod, g.pool, "Kernel", time.Now()
	data, err := wire.Encode(s)
	if err == nil {
		err = g.put(wire.StatusBucket(g.code), wire.GatewayStatusKey(g.pod), data)
	}
	if err != nil && g.t.Context().Err() == nil {
		g.t.Logf("report of %s: %v", g.pod, err)
	}
}

// heard reports a heartbeat of an instrument's sender that only this pod receives.
func (g *gateway) heard(instrument string, offset time.Duration) {
	g.t.Helper()
	roundTrip := wire.Span(20 * time.Millisecond)
	data, err := wire.Encode(wire.SenderStatus{Gateway: g.pod, Sender: "heard-by-" + g.pod, ReportedAt: time.Now(), ClockOffset: (*wire.Span)(&offset), RoundTrip: &roundTrip, QueueObjects: 7})
	if err == nil {
		err = g.put(wire.StatusBucket(g.code), wire.SenderStatusKey(instrument, g.pod), data)
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// received reports that data of an instrument was received a while ago.
func (g *gateway) received(instrument string, ago time.Duration, objects uint64) {
	g.t.Helper()
	if err := g.tellReceived(instrument, ago, objects); err != nil {
		g.t.Fatal(err)
	}
}

// receiving reports again and again that data of an instrument was just received, until the returned function is called: with a short cadence,
// one report may be overdue before a busy machine has come to it.
func (g *gateway) receiving(instrument string, objects uint64) (stop func()) {
	g.t.Helper()
	return repeat(g.world, func() {
		if err := g.tellReceived(instrument, 0, objects); err != nil && g.t.Context().Err() == nil {
			g.t.Errorf("report of %s: %v", g.pod, err)
		}
	})
}

func (g *gateway) tellReceived(instrument string, ago time.Duration, objects uint64) error {
	now := time.Now()
	s := wire.InstrumentStatus{ReportedAt: now, LastReceived: now.Add(-ago), Day: wire.DayOf(now), Objects: objects, Bytes: 1000 * objects}
	data, err := wire.Encode(s)
	if err == nil {
		err = g.put(wire.StatusBucket(g.code), wire.InstrumentStatusKey(instrument, g.pod), data)
	}
	return err
}
