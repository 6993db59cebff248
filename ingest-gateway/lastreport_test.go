// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// A gateway that is drained says that it stopped once its last totals are in the ledger,
// and one that could not write them says that.
func TestLastReport(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	g := l.start(t, gatewayOptions{})
	l.awaitRevision(t, g.name, l.declare(t, httpInstrument("camera", port)))
	awaitListening(t, port)
	object := random(1, 100_000)
	put(in(port, "camera", "x"), object).wantReceipt(t, 201, object)
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	if s, err := l.gatewayStatus(t, g.name); err != nil || !s.Stopped || s.Unwritten {
		t.Errorf("the last report: %+v, %v", s, err)
	}
	if totals := l.ledger(t, "camera", wire.StepReceived); totals.Objects != 1 {
		t.Errorf("received when it has stopped: %+v", totals)
	}
	// Without its ledger it cannot write.
	g = l.start(t, gatewayOptions{dir: g.dir})
	g.awaitReady()
	awaitListening(t, port)
	if err := l.js.DeleteKeyValue(t.Context(), wire.LedgerBucket(l.site)); err != nil {
		t.Fatal(err)
	}
	other := random(2, 100_000)
	put(in(port, "camera", "y"), other).wantReceipt(t, 201, other)
	_ = g.stop()
	if s, err := l.gatewayStatus(t, g.name); err != nil || !s.Stopped || !s.Unwritten {
		t.Errorf("the last report without a ledger: %+v, %v", s, err)
	}
}

func (l *lab) instrumentStatus(t *testing.T, instrument, gateway string) (wire.InstrumentStatus, error) {
	kv, err := l.js.KeyValue(t.Context(), wire.StatusBucket(l.site))
	if err != nil {
		return wire.InstrumentStatus{}, err
	}
	e, err := kv.Get(t.Context(), wire.InstrumentStatusKey(instrument, gateway))
	if err != nil {
		return wire.InstrumentStatus{}, err
	}
	return wire.Decode[wire.InstrumentStatus](e.Value())
}

// A gateway's last report of an instrument says what its ledger says, also if datagrams come until it takes no more.
func TestLastReportOfDatagrams(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	magnetometer := tcpInstrument("magnetometer", port)
	magnetometer.Listeners = []wire.ListenerEntry{{Protocol: wire.ProtocolUDP, Port: uint16(port), Channel: "raw"}}
	g := l.start(t, gatewayOptions{})
	l.awaitRevision(t, g.name, l.declare(t, magnetometer))
	conn, err := net.Dial("udp", loopback(port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stopped := make(chan struct{})
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for {
			select {
			case <-stopped:
				return
			case <-time.After(time.Millisecond):
				_, _ = conn.Write([]byte("49123.4 nT")) // refused once the gateway is gone
			}
		}
	}()
	l.awaitLedger(t, "magnetometer", wire.StepReceived, func(s wire.Totals) bool { return s.Datagrams > 0 })
	err = g.stop()
	close(stopped)
	<-sent
	if err != nil {
		t.Fatal(err)
	}
	received := l.ledger(t, "magnetometer", wire.StepReceived).Datagrams
	if s, err := l.instrumentStatus(t, "magnetometer", g.name); err != nil || s.Datagrams != received {
		t.Errorf("it received %d datagrams and reported %+v, %v", received, s, err)
	}
}

// A gateway reports again on the instruments that it knows when the bucket of reports was deleted
// and recreated.
func TestReportsAreLost(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	g := l.start(t, gatewayOptions{})
	l.awaitRevision(t, g.name, l.declare(t, httpInstrument("camera", port)))
	awaitListening(t, port)
	object := random(1, 100_000)
	put(in(port, "camera", "x"), object).wantReceipt(t, 201, object)
	reported := func(what string) (s wire.InstrumentStatus) {
		t.Helper()
		await(t, what, func() (bool, string) {
			var err error
			s, err = l.instrumentStatus(t, "camera", g.name)
			return err == nil && s.Objects == 1, fmt.Sprintf("%+v, %v", s, err)
		})
		return s
	}
	before := reported("the gateway reports what it received")
	bucket := wire.StatusBucket(l.site)
	if err := l.js.DeleteKeyValue(t.Context(), bucket); err != nil {
		t.Fatal(err)
	}
	if _, err := l.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: bucket, Storage: jetstream.FileStorage}); err != nil {
		t.Fatal(err)
	}
	if after := reported("the gateway reports it again"); !after.LastReceived.Equal(before.LastReceived) {
		t.Errorf("last received at %v, and at %v before", after.LastReceived, before.LastReceived)
	}
}
