// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

var scope = Scope{Pool: "north", FirstPort: 30100, LastPort: 30199}

// listener spells "TCP 30100 10.0.0.0/8,…".
func listener(spelled string) wire.ListenerEntry {
	var protocol, sources string
	var port uint16
	_, _ = fmt.Sscanf(spelled, "%s %d %s", &protocol, &port, &sources)
	w := wire.ListenerEntry{Protocol: protocol, Port: port}
	if sources != "" {
		w.Sources = strings.Split(sources, ",")
	}
	switch protocol {
	case wire.ProtocolTCP:
		w.Framing, w.Receipt, w.IdleTimeoutMillis, w.MaxAgeMillis = wire.FramingUntilClose, wire.ReceiptLine, 1000, 2000
	case wire.ProtocolHTTP:
		w.IdleTimeoutMillis, w.MaxAgeMillis, w.UploadExpiryMillis = 1000, 2000, 3000
	default:
		w.Channel = "raw"
	}
	return w
}

func entry(name string, revision int64, listeners ...string) wire.InstrumentEntry {
	e := wire.InstrumentEntry{Instrument: name, Gateway: "north", Revision: revision, MaxObjectSize: 1, MaxConnections: 1}
	for _, w := range listeners {
		e.Listeners = append(e.Listeners, listener(w))
	}
	return e
}

func bucketOf(t *testing.T, revision int64, count int, entries ...wire.InstrumentEntry) *registry.Bucket {
	t.Helper()
	return bucketSince(t, time.Unix(1, 0), revision, count, entries...)
}

func bucketSince(t *testing.T, epoch time.Time, revision int64, count int, entries ...wire.InstrumentEntry) *registry.Bucket {
	t.Helper()
	b := registry.NewBucket(epoch)
	take := func(key string, record any) {
		raw, err := wire.Encode(record)
		if err != nil {
			t.Fatal(err)
		}
		b.Take(key, raw, true)
	}
	take(wire.RegistryCompleteKey, wire.RegistryComplete{Revision: revision, Count: count})
	for _, e := range entries {
		take(wire.RegistryInstrumentKey(e.Instrument), e)
	}
	return b
}

// resolved is what follows from a bucket alone.
func resolved(b *registry.Bucket) *Snapshot {
	return resolve(&Snapshot{}, registry.Resolve(registry.New().Snapshot(), b), scope)
}

// who asks a snapshot for "TCP 30100 10.0.0.1".
func who(s *Snapshot, question string) string {
	var protocol, addr string
	var port uint16
	_, _ = fmt.Sscanf(question, "%s %d %s", &protocol, &port, &addr)
	w, ok := s.Lookup(protocol, port, netip.MustParseAddr(addr))
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s@%d", w.Instrument.Name, w.Instrument.Revision)
}

func TestResolve(t *testing.T) {
	a1 := entry("a", 1, "TCP 30100")
	type step struct {
		bucket   *registry.Bucket
		revision int64             // that runs afterwards
		answers  map[string]string // question → instrument@revision
		problems []string          // instruments that have one
	}
	newer := bucketSince(t, time.Unix(2, 0), 1, 1, entry("z", 1, "TCP 30100"))
	unreadable := bucketOf(t, 2, 1)
	unreadable.Take(wire.RegistryInstrumentKey("a"), []byte(`{"format":99,"instrument":"a"}`), true)

	for name, steps := range map[string][]step{
		"an addition applies before its marker": {
			{bucketOf(t, 0, 0, a1), 0, map[string]string{"TCP 30100 192.0.2.1": "a@1"}, nil},
		},
		"a complete registry": {
			{bucketOf(t, 1, 1, a1), 1, map[string]string{"TCP 30100 192.0.2.1": "a@1", "UDP 30100 192.0.2.1": "", "TCP 30101 192.0.2.1": ""}, nil},
		},
		"a removal waits for its marker": {
			{bucketOf(t, 1, 2, a1, entry("b", 1, "TCP 30101")), 1, map[string]string{"TCP 30101 ::1": "b@1"}, nil},
			{bucketOf(t, 1, 2, a1), 1, map[string]string{"TCP 30101 ::1": "b@1", "TCP 30100 ::1": "a@1"}, nil},
			{bucketOf(t, 2, 1, a1), 2, map[string]string{"TCP 30101 ::1": "", "TCP 30100 ::1": "a@1"}, nil},
		},
		"an empty bucket removes nothing": {
			{bucketOf(t, 1, 1, a1), 1, map[string]string{"TCP 30100 ::1": "a@1"}, nil},
			{bucketOf(t, 0, 0), 1, map[string]string{"TCP 30100 ::1": "a@1"}, nil},
		},
		"a changed port opens at once and the old one closes with the marker": {
			{bucketOf(t, 1, 1, a1), 1, map[string]string{"TCP 30100 ::1": "a@1"}, nil},
			{bucketOf(t, 1, 1, entry("a", 2, "TCP 30101")), 1, map[string]string{"TCP 30101 ::1": "a@2", "TCP 30100 ::1": "a@1"}, nil},
			{bucketOf(t, 2, 1, entry("a", 2, "TCP 30101")), 2, map[string]string{"TCP 30101 ::1": "a@2", "TCP 30100 ::1": ""}, nil},
		},
		"the older claim stays until the newer revision is complete": {
			{bucketOf(t, 1, 1, a1), 1, map[string]string{"TCP 30100 ::1": "a@1"}, nil},
			{bucketOf(t, 1, 1, a1, entry("b", 2, "TCP 30100")), 1, map[string]string{"TCP 30100 ::1": "a@1"}, []string{"b"}},
			{bucketOf(t, 1, 1, entry("a", 2, "TCP 30101"), entry("b", 2, "TCP 30100")), 1, map[string]string{"TCP 30100 ::1": "a@1", "TCP 30101 ::1": "a@2"}, []string{"b"}},
			{bucketOf(t, 2, 2, entry("a", 2, "TCP 30101"), entry("b", 2, "TCP 30100")), 2, map[string]string{"TCP 30100 ::1": "b@2", "TCP 30101 ::1": "a@2"}, nil},
		},
		"a conflict in a complete registry: the older entry has it": {
			{bucketOf(t, 2, 2, entry("b", 1, "TCP 30100 10.0.0.0/8"), entry("a", 2, "TCP 30100 10.1.2.3/32")), 2, map[string]string{"TCP 30100 10.1.2.3": "b@1"}, []string{"a"}},
		},
		"any address conflicts with one": {
			{bucketOf(t, 2, 2, entry("b", 1, "UDP 30100 10.0.0.0/8"), entry("a", 2, "UDP 30100")), 2, map[string]string{"UDP 30100 10.1.2.3": "b@1", "UDP 30100 11.0.0.1": ""}, []string{"a"}},
		},
		"sources on one port": {
			{bucketOf(t, 1, 3, entry("a", 1, "TCP 30100 10.0.0.1/32,2001:db8::/32"), entry("b", 1, "TCP 30100 10.0.0.2/31"), entry("c", 1, "UDP 30100")), 1, map[string]string{
				"TCP 30100 10.0.0.1": "a@1", "TCP 30100 10.0.0.2": "b@1", "TCP 30100 10.0.0.3": "b@1", "TCP 30100 10.0.0.4": "",
				"TCP 30100 2001:db8::7": "a@1", "TCP 30100 2001:db9::7": "", "TCP 30100 ::ffff:10.0.0.1": "a@1",
				"TCP 30100 fe80::1%eth0": "", "UDP 30100 fe80::1%eth0": "c@1",
			}, nil},
		},
		"an entry of another pool counts and is not received": {
			{bucketOf(t, 1, 2, a1, func() wire.InstrumentEntry { e := entry("b", 1, "TCP 30101"); e.Gateway = "south"; return e }()), 1, map[string]string{"TCP 30101 ::1": "", "TCP 30100 ::1": "a@1"}, nil},
		},
		"an entry that cannot be read leaves the one before": {
			{bucketOf(t, 1, 1, a1), 1, map[string]string{"TCP 30100 ::1": "a@1"}, nil},
			{unreadable, 2, map[string]string{"TCP 30100 ::1": "a@1"}, []string{"a"}},
		},
		"a port outside the pool's range": {
			{bucketOf(t, 1, 1, entry("a", 1, "TCP 8080", "TCP 30100")), 1, map[string]string{"TCP 8080 ::1": "", "TCP 30100 ::1": "a@1"}, []string{"a"}},
		},
		"an older state of the same bucket undoes nothing": {
			{bucketOf(t, 3, 2, entry("a", 3, "TCP 30101"), entry("b", 2, "TCP 30102")), 3, nil, nil},
			{bucketOf(t, 1, 1, a1), 3, map[string]string{"TCP 30101 ::1": "a@3", "TCP 30100 ::1": "", "TCP 30102 ::1": "b@2"}, nil},
		},
		"a bucket made anew counts from its own beginning": {
			{bucketOf(t, 3, 1, entry("a", 3, "TCP 30100")), 3, nil, nil},
			{newer, 1, map[string]string{"TCP 30100 ::1": "z@1"}, nil},
		},
		"a marker below its entries is not theirs": {
			{bucketOf(t, 1, 1, entry("a", 2, "TCP 30100")), 0, map[string]string{"TCP 30100 ::1": "a@2"}, nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := registry.New().Snapshot(), &Snapshot{}
			for i, step := range steps {
				r = registry.Resolve(r, step.bucket)
				s = resolve(s, r, scope)
				if s.Revision != step.revision {
					t.Errorf("step %d: runs revision %d, want %d", i, s.Revision, step.revision)
				}
				for question, want := range step.answers {
					if got := who(s, question); got != want {
						t.Errorf("step %d: %s is %q, want %q", i, question, got, want)
					}
				}
				var problems []string
				for name := range s.Problems {
					problems = append(problems, name)
				}
				if diff := cmp.Diff(step.problems, problems); diff != "" {
					t.Errorf("step %d: problems (-want +got):\n%s\n%v", i, diff, s.Problems)
				}
			}
		})
	}
}

func TestNewInstrumentRefuses(t *testing.T) {
	for name, change := range map[string]func(*wire.InstrumentEntry){
		"no name":          func(e *wire.InstrumentEntry) { e.Instrument = "" },
		"no object size":   func(e *wire.InstrumentEntry) { e.MaxObjectSize = 0 },
		"no connections":   func(e *wire.InstrumentEntry) { e.MaxConnections = 0 },
		"port 0":           func(e *wire.InstrumentEntry) { e.Listeners[0].Port = 0 },
		"bad source":       func(e *wire.InstrumentEntry) { e.Listeners[0].Sources = []string{"10.0.0.1"} },
		"unknown protocol": func(e *wire.InstrumentEntry) { e.Listeners[0].Protocol = "SCTP" },
		"unknown framing":  func(e *wire.InstrumentEntry) { e.Listeners[0].Framing = "Records" },
		"unknown receipt":  func(e *wire.InstrumentEntry) { e.Listeners[0].Receipt = "Fax" },
		"no idle timeout":  func(e *wire.InstrumentEntry) { e.Listeners[0].IdleTimeoutMillis = 0 },
		"no greatest age":  func(e *wire.InstrumentEntry) { e.Listeners[0].MaxAgeMillis = 0 },
		"no channel":       func(e *wire.InstrumentEntry) { e.Listeners[1].Channel = "" },
	} {
		e := entry("a", 1, "TCP 30100", "UDP 30100")
		change(&e)
		if in, err := NewInstrument(e); err == nil {
			t.Errorf("%s: %+v", name, in)
		}
	}
}

// Lookup is on the way of every datagram.
func TestLookupAllocatesNothing(t *testing.T) {
	var entries []wire.InstrumentEntry
	for i := range 500 {
		entries = append(entries, entry(fmt.Sprintf("i%d", i), 1, fmt.Sprintf("UDP 30100 10.0.%d.%d/32", i/250, i%250)))
	}
	s := resolved(bucketOf(t, 1, 500, entries...))
	addr := netip.MustParseAddr("::ffff:10.0.1.7")
	if w, ok := s.Lookup(wire.ProtocolUDP, 30100, addr); !ok || w.Instrument.Name != "i257" {
		t.Fatalf("%+v", w)
	}
	if n := testing.AllocsPerRun(100, func() { s.Lookup(wire.ProtocolUDP, 30100, addr) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLookup(b *testing.B) {
	s := &Snapshot{instruments: map[string]*Instrument{}, claims: map[place]*claims{}, streams: map[uint16]*Listener{}}
	for i := range 10_000 {
		in, err := NewInstrument(entry(fmt.Sprintf("i%d", i), 1, fmt.Sprintf("UDP 30100 10.%d.%d.1/32", i/250, i%250)))
		if err != nil {
			b.Fatal(err)
		}
		s.claim(in.Listeners[0])
	}
	addr := netip.MustParseAddr("10.12.34.1")
	for b.Loop() {
		s.Lookup(wire.ProtocolUDP, 30100, addr)
	}
}

// TestPathsTellInstrumentsApart: any number of instruments share a port of HTTP,
// and none of them a port of raw TCP.
func TestPathsTellInstrumentsApart(t *testing.T) {
	s := resolved(bucketOf(t, 9, 4,
		entry("camera", 1, "HTTP 30100 192.0.2.0/24", "HTTP 30100 192.0.2.7/32", "UDP 30100"), entry("riometer", 2, "HTTP 30100"),
		entry("late", 3, "TCP 30100 10.0.0.1/32"), entry("later", 4, "TCP 30101", "HTTP 30101")))
	for _, c := range []struct {
		instrument, addr string
		port             uint16
		found, known     bool
	}{
		{"camera", "192.0.2.7", 30100, true, true},
		{"camera", "::ffff:192.0.2.9", 30100, true, true},
		{"camera", "198.51.100.1", 30100, false, true},
		{"riometer", "198.51.100.1", 30100, true, true},
		{"unknown sender", "192.0.2.7", 30100, false, false},
		{"camera", "192.0.2.7", 30101, false, false},
		{"later", "192.0.2.7", 30101, false, false},
	} {
		listener, refusal := s.Identify(Claim{Protocol: wire.ProtocolHTTP, Port: c.port, Addr: netip.MustParseAddr(c.addr), Instrument: c.instrument})
		known := refusal.Cause != wire.CauseUnknownInstrument
		if (listener != nil) != c.found || known != c.known {
			t.Errorf("%s from %s on %d: listener %v, known %v", c.instrument, c.addr, c.port, listener, known)
		}
		if listener != nil && listener.Instrument.Name != c.instrument {
			t.Errorf("path names %s, and the listener is of %s", c.instrument, listener.Instrument.Name)
		}
	}
	if diff := cmp.Diff([]uint16{30100}, s.Ports(wire.ProtocolHTTP)); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"late", "later"} {
		if s.Problems[name] == "" {
			t.Errorf("%s has raw TCP and HTTP on one port, and no problem", name)
		}
	}
	if len(s.Problems) != 2 {
		t.Errorf("problems %v", s.Problems)
	}
}

// An instrument that comes again unchanged keeps its listeners, and so does one that cannot be read:
// connections continue with them.
func TestListenersKeepTheirIdentity(t *testing.T) {
	b := bucketOf(t, 1, 2, entry("a", 1, "TCP 30100"), entry("b", 1, "TCP 30101"))
	r := registry.Resolve(registry.New().Snapshot(), b)
	first := resolve(&Snapshot{}, r, scope)
	for name, next := range map[string]*registry.Bucket{
		"after an outage of NATS": bucketOf(t, 2, 2, entry("a", 1, "TCP 30100"), entry("b", 2, "TCP 30102")),
		"before its marker":       bucketOf(t, 0, 0, entry("a", 1, "TCP 30100"), entry("b", 2, "TCP 30102")),
		"in another bucket":       bucketSince(t, time.Unix(2, 0), 1, 2, entry("a", 1, "TCP 30100"), entry("b", 2, "TCP 30102")),
		"not understood":          bucketOf(t, 2, 2, entry("a", 2, "SCTP 30100"), entry("b", 2, "TCP 30102")),
	} {
		s := resolve(first, registry.Resolve(r, next), scope)
		was, now := first.Instrument("a"), s.Instrument("a")
		listener, known := s.Lookup(wire.ProtocolTCP, 30100, netip.MustParseAddr("::1"))
		if now != was || !known || listener != was.Listeners[0] {
			t.Errorf("%s: a is another instrument, or has another listener", name)
		}
		if s.Instrument("b") == first.Instrument("b") {
			t.Errorf("%s: b did not change", name)
		}
	}
}
