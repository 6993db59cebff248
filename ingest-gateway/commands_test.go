// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// obeying is a sender that takes commands.
type obeying struct{ *dialog }

func (d obeying) beat(commands ...string) {
	d.t.Helper()
	frame, err := wire.Heartbeat{Sender: "field", SentAt: time.Now(), Commands: commands, Sampling: &wire.SamplingReport{}}.Frame()
	if err != nil {
		d.t.Fatal(err)
	}
	d.write(frame)
}

func (d obeying) text() string {
	d.t.Helper()
	_ = d.conn.SetReadDeadline(time.Now().Add(patience))
	text, err := d.in.ReadString('\n')
	if err != nil {
		d.t.Fatal(err)
	}
	return text
}

// commanded expects a command, among answers to heartbeats.
func (d obeying) commanded(want ...wire.ChannelSampling) {
	d.t.Helper()
	for {
		text := d.text()
		if strings.HasPrefix(text, "heartbeat ") {
			continue
		}
		got, err := wire.ParseSampling(text)
		if err != nil {
			d.t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Channels); diff != "" {
			d.t.Fatalf("command -want +got\n%s", diff)
		}
		return
	}
}

// answered expects an answer to a heartbeat, and no command before it.
func (d obeying) answered() {
	d.t.Helper()
	if text := d.text(); !strings.HasPrefix(text, "heartbeat ") {
		d.t.Fatalf("got %q", text)
	}
}

func each(millis int64) wire.ChannelSampling {
	return wire.ChannelSampling{State: wire.SamplingObserving, IntervalMillis: millis}
}

// sampled is an instrument that observes each minute; consumers may have a second.
func sampled(name string, port int) wire.InstrumentEntry {
	e := framed(name, port, wire.FramingLengthPrefixed)
	e.Sampling = &wire.SamplingEntry{Channels: []wire.ChannelSampling{each(60_000)}, ConsumersMayAsk: true, MinIntervalMillis: 1000}
	return e
}

// A sender that takes commands gets the one that stands, and each other one: while
// nothing is sent, while the store owes receipts, over each of its connections. One
// that does not take them gets none.
func TestCommands(t *testing.T) {
	t.Parallel()
	l := newLabAlone(t)
	port := testenv.FreePort(t)
	g := l.start(t, gatewayOptions{})
	entry := sampled("spectra", port)
	l.awaitRevision(t, g.name, l.declare(t, entry))
	d, old, other := obeying{newDialog(t, port)}, obeying{newDialog(t, port)}, obeying{newDialog(t, port)}
	old.beat()
	old.answered()
	old.beat("focus")
	old.answered()
	d.beat("focus", wire.CommandSampling)
	d.commanded(each(60_000))
	d.beat(wire.CommandSampling) // is sent the command once
	d.answered()
	other.beat(wire.CommandSampling)
	other.commanded(each(60_000))

	dark := wire.ChannelSampling{Channel: "dark", State: wire.SamplingPaused}
	entry.Sampling = &wire.SamplingEntry{Channels: []wire.ChannelSampling{each(5000), dark}}
	l.declare(t, entry)
	d.commanded(each(5000), dark)
	other.commanded(each(5000), dark)

	l.minio.Pause()
	object := []byte("a spectrum")
	d.write(prefixed(object))
	entry.Sampling = nil
	l.declare(t, entry)
	d.commanded(each(0)) // the receipt cannot have come before
	l.minio.Continue()
	d.stored(object)
	other.commanded(each(0))

	other.fin()
	other.ended()
	old.write(prefixed(object))
	old.stored(object) // and nothing else, all the time
	if v := g.metric(`substorm_gateway_commands_total{instrument="spectra",type="sampling"}`); v != "6" {
		t.Errorf("the metric counts %s commands", v)
	}
}

// If the Instrument lets them, consumers ask for more: the largest rate is sent as the command,
// until it is cancelled or not renewed. The Site's status says who asked.
func TestConsumersAsk(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	requests, err := l.js.UpdateKeyValue(t.Context(), jetstream.KeyValueConfig{
		Bucket: wire.RequestBucket(l.site), Storage: jetstream.FileStorage, History: 1, TTL: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(consumer, channel string, millis int64) {
		t.Helper()
		r := wire.SamplingRequest{Instrument: "spectra", Channel: channel, Consumer: consumer, IntervalMillis: millis, At: time.Now().UTC()}
		b, err := wire.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := requests.Put(t.Context(), wire.SamplingRequestKey(r.Instrument, channel, consumer), b); err != nil {
			t.Fatal(err)
		}
	}
	ask("early", "", 30_000) // before there is a gateway
	g := l.start(t, gatewayOptions{})
	entry := sampled("spectra", port)
	l.awaitRevision(t, g.name, l.declare(t, entry))
	d := obeying{newDialog(t, port)}
	d.beat(wire.CommandSampling)
	for got := ""; !strings.Contains(got, "60000"); got = d.text() { // it may have lapsed already
	}
	ask("one", "", 20_000)
	d.commanded(each(20_000))
	if _, err := requests.Put(t.Context(), "request.spectra._.one.two", []byte("{}")); err != nil { // and nonsense, which is passed over
		t.Fatal(err)
	}
	ask("two", "", 3000)
	d.commanded(each(3000))
	status, err := l.js.KeyValue(t.Context(), wire.StatusBucket(l.site))
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the status says who asked", func() (bool, string) {
		e, err := status.Get(t.Context(), wire.SenderStatusKey("spectra", g.name))
		if err != nil {
			return false, err.Error()
		}
		s, err := wire.Decode[wire.SenderStatus](e.Value())
		return err == nil && len(s.Asked) == 1 && s.Asked[0].By == "two" && s.Asked[0].IntervalMillis == 3000, string(e.Value())
	})
	ask("one", "", 20_000) // is renewed
	if err := requests.Delete(t.Context(), wire.SamplingRequestKey("spectra", "", "two")); err != nil {
		t.Fatal(err)
	}
	d.commanded(each(20_000))
	d.commanded(each(60_000)) // it was not renewed
	ask("greedy", "", 999)
	ask("lost", "no-such-channel", 2000)
	entry.Sampling.ConsumersMayAsk = false
	l.awaitRevision(t, g.name, l.declare(t, entry))
	ask("denied", "", 2000)
	entry.Sampling.Channels[0].IntervalMillis = 50_000
	l.declare(t, entry)
	d.commanded(each(50_000)) // and nothing before it
}

// For an instrument that sends datagrams, the gateway reports how often they come on each channel.
func TestDatagramsAchieve(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	fast, slow := testenv.FreePort(t), testenv.FreePort(t)
	g := l.start(t, gatewayOptions{})
	mag := tcpInstrument("mag", fast)
	mag.Listeners = []wire.ListenerEntry{{Protocol: wire.ProtocolUDP, Port: uint16(fast), Channel: "fast"}, {Protocol: wire.ProtocolUDP, Port: uint16(slow), Channel: "slow"}}
	l.awaitRevision(t, g.name, l.declare(t, mag))
	sends := func(port int) func() {
		conn, err := net.Dial("udp", testenv.Loopback(port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return func() {
			t.Helper()
			if _, err := conn.Write([]byte("48123.4 -12.9\n")); err != nil {
				t.Fatal(err)
			}
		}
	}
	toFast, toSlow := sends(fast), sends(slow)
	status, err := l.js.KeyValue(t.Context(), wire.StatusBucket(l.site))
	if err != nil {
		t.Fatal(err)
	}
	achieves := func(what string, each func(i int), is func(fast, slow time.Duration) bool) {
		t.Helper()
		i := 0
		await(t, what, func() (bool, string) {
			each(i)
			i++
			e, err := status.Get(t.Context(), wire.InstrumentStatusKey("mag", g.name))
			if err != nil {
				return false, err.Error()
			}
			s, err := wire.Decode[wire.InstrumentStatus](e.Value())
			a := s.Achieved
			return err == nil && len(a) == 2 && a[0].Channel == "fast" && a[1].Channel == "slow" &&
				is(time.Duration(a[0].Interval), time.Duration(a[1].Interval)), string(e.Value())
		})
	}
	// One each 20 ms and what asking takes; exactly twenty times as many as of the other.
	achieves("the rates are told", func(i int) {
		toFast()
		if i%20 == 0 {
			toSlow()
		}
	}, func(fast, slow time.Duration) bool {
		return fast >= 20*time.Millisecond && slow > 10*fast && slow < 40*fast
	})
	achieves("one is silent", func(int) { toFast() }, func(fast, slow time.Duration) bool { return slow > 5*time.Second && slow > 50*fast })
}
