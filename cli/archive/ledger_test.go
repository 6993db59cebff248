// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

func objects(n, size uint64, names ...string) wire.Totals {
	t := wire.Totals{Objects: n, ObjectBytes: size, Acknowledged: n}
	for _, name := range names {
		t.Digest = t.Digest.Plus(wire.Digest(sha256.Sum256([]byte(name))))
	}
	return t
}

func datagrams(n, size uint64) wire.Totals { return wire.Totals{Datagrams: n, DatagramBytes: size} }

func undecodable(n, size, lost uint64) wire.Totals {
	t := datagrams(n, size)
	t.Dropped = map[wire.Cause]uint64{wire.CauseUndecodable: lost}
	return t
}

func TestDifferences(t *testing.T) {
	same := Ledger{Received: objects(2, 20, "a", "b"), Announced: objects(2, 20, "b", "a")}
	resolved := func(l *Ledger, cause wire.Cause) {
		l.Received.Objects, l.Received.ObjectBytes, l.Received.Resolved, l.Received.ResolvedBytes = 3, 30, 1, 10
		l.Received.Acknowledged, l.Received.Unfinished = 3, map[wire.Cause]uint64{cause: 1}
	}
	at := noon
	for name, c := range map[string]struct {
		change func(*Ledger)
		says   []string
	}{
		"nothing":                    {func(*Ledger) {}, nil},
		"duplicates":                 {func(l *Ledger) { l.Duplicates = objects(1, 10, "a") }, nil},
		"unfinished":                 {func(l *Ledger) { l.Received.Unfinished = map[wire.Cause]uint64{wire.CauseReset: 3} }, nil},
		"a receipt not written":      {func(l *Ledger) { l.Received.Acknowledged = 1 }, nil},
		"more receipts than objects": {func(l *Ledger) { l.Received.Acknowledged = 3 }, []string{"3 acknowledged, 2 received"}},
		"corrupt":                    {func(l *Ledger) { resolved(l, wire.CauseCorrupt) }, []string{"1 receipted into a spool and corrupt there"}},
		"a duplicate from the spool": {func(l *Ledger) { resolved(l, wire.CauseDuplicate) }, nil},
		"a duplicate of what is there": {func(l *Ledger) {
			l.Received.Acknowledged, l.Received.Unfinished = 3, map[wire.Cause]uint64{wire.CauseDuplicate: 1}
		}, nil},
		"corrupt, of no instrument": {func(l *Ledger) {
			*l = Ledger{Instrument: wire.UnknownInstrument, Received: wire.Totals{Unfinished: map[wire.Cause]uint64{wire.CauseCorrupt: 2}}}
		}, []string{"2 receipted into a spool and corrupt there"}},
		"abandoned, and one more is lost": {func(l *Ledger) {
			resolved(l, wire.CauseSpoolAbandoned)
			l.Received.Acknowledged = 5
		}, []string{"1 receipted and lost with the spool", "5 acknowledged, 3 received"}},
		"more lost than received": {func(l *Ledger) {
			*l = Ledger{Received: wire.Totals{Objects: 1, Resolved: 2}}
		}, []string{"1 received, and 2 of them said to be lost or put into quarantine"}},
		"not announced": {func(l *Ledger) { l.Received = objects(3, 30, "a", "b", "c") }, []string{"3 received, 2 announced: what is new is listed"}},
		"not received":  {func(l *Ledger) { l.Received = objects(1, 10, "a") }, []string{"1 received, 2 announced"}},
		"other bytes":   {func(l *Ledger) { l.Announced.ObjectBytes = 19 }, []string{"20 received, 19 announced"}},
		"other objects": {func(l *Ledger) { l.Announced = objects(2, 20, "a", "c") }, []string{"not the same objects"}},
		"segments to come": {func(l *Ledger) {
			*l = Ledger{Received: datagrams(10, 100), Stored: datagrams(7, 70)}
		}, []string{"7 of 10 are in segments"}},
		"segments that cannot come any more": {func(l *Ledger) {
			*l = Ledger{Day: "2026-11-21", streamMade: at, Received: datagrams(10, 100), Stored: datagrams(7, 70)}
		}, []string{"7 of 10 are in segments; the others wait for theirs to be cut, or were lost with the stream of observations if there was one before this of 2026-11-21T12:00:00Z"}},
		"segments hold more": {func(l *Ledger) {
			*l = Ledger{Received: datagrams(10, 100), Stored: datagrams(11, 110)}
		}, []string{"11 (110 bytes) in segments"}},
		"datagrams that nobody can read": {func(l *Ledger) {
			*l = Ledger{Received: datagrams(10, 100), Stored: undecodable(7, 70, 3)}
		}, nil},
		"some of them, and segments to come": {func(l *Ledger) {
			*l = Ledger{Received: datagrams(10, 100), Stored: undecodable(5, 50, 3)}
		}, []string{"5 of 7 are in segments"}},
		"more of them than were received": {func(l *Ledger) {
			*l = Ledger{Received: datagrams(10, 100), Stored: undecodable(8, 80, 3)}
		}, []string{"8 (80 bytes) in segments, 3 in none (Undecodable=3), 10 (100 bytes) received"}},
		"other bytes than were received": {func(l *Ledger) {
			*l = Ledger{Received: datagrams(10, 100), Stored: datagrams(10, 99)}
		}, []string{"10 (99 bytes) in segments"}},
		"of no instrument": {func(l *Ledger) {
			*l = Ledger{Instrument: wire.UnknownInstrument, Stored: undecodable(0, 0, 3)}
		}, nil},
		"a silent gateway": {func(l *Ledger) {
			l.Writers = []WriterColumns{{Writer: "gateway-2", Stale: true, ReportedAt: &at}, {Writer: "gateway-1"}}
		}, []string{"gateway-2 has not reported since 2026-11-21T12:00:00Z: what it received since is unknown until it comes back, or is given up (substorm spool abandon gateway-2)"}},
		"a gateway that stopped too early": {func(l *Ledger) {
			l.Writers = []WriterColumns{{Writer: "gateway-2", Stale: true, Stopped: true, ReportedAt: &at}}
		}, []string{"gateway-2 stopped at 2026-11-21T12:00:00Z before all that it counted was written"}},
	} {
		l := same
		c.change(&l)
		got := l.compare()
		if len(got) != len(c.says) {
			t.Errorf("%s: got %q, want %q", name, got, c.says)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], c.says[i]) {
				t.Errorf("%s: got %q, want %q", name, got[i], c.says[i])
			}
		}
	}
}

// The columns do not agree if objects are lost that senders have receipts for.
func TestVerdictOfLoss(t *testing.T) {
	for name, change := range map[string]func(*wire.Totals){
		"acknowledged": func(r *wire.Totals) { r.Acknowledged = 3 },
		"corrupt":      func(r *wire.Totals) { r.Unfinished = map[wire.Cause]uint64{wire.CauseCorrupt: 1} },
		"abandoned":    func(r *wire.Totals) { r.Unfinished = map[wire.Cause]uint64{wire.CauseSpoolAbandoned: 1} },
	} {
		received := objects(2, 20, "a", "b")
		change(&received)
		same := map[string]wire.Totals{"one": objects(2, 20, "a", "b")}
		all := sumUp(map[instrumentDay]map[string]*WriterColumns{
			{"allsky-1", "2026-11-21"}: {
				"gateway-0":          {Writer: "gateway-0", received: map[string]wire.Totals{"one": received}},
				wire.ArchivistWriter: {Writer: wire.ArchivistWriter, announced: same, Announced: same["one"]},
			},
		}, time.Time{})
		var out bytes.Buffer
		printLedgers(&out, site, all)
		if all[0].Agree || strings.Contains(out.String(), "The columns agree") {
			t.Errorf("%s: %s", name, &out)
		}
	}
}

// putEntries writes what two gateways and the archivist write.
func putEntries(t *testing.T, js jetstream.JetStream, now time.Time) {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), wire.LedgerBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	entry := func(instrument string, day wire.Day, step wire.Step, writer string, incarnations ...wire.Totals) {
		e := wire.LedgerEntry{Incarnations: map[string]wire.Totals{}}
		for i, l := range incarnations {
			e.Incarnations[string(rune('a'+i))] = l
		}
		data, err := wire.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Put(t.Context(), wire.LedgerKey(instrument, day, step, writer), data); err != nil {
			t.Fatal(err)
		}
	}
	// Incarnations are a, b, … of one entry; of the pods' ones each announced entry has those of both.
	first, second := objects(1, 10, "a"), objects(2, 20, "b", "c")
	third := objects(1, 5, "d")
	entry("allsky-1", "2026-11-21", wire.StepAnnounced, wire.ArchivistWriter, first, second, third)
	first.Unfinished, second.Unfinished = map[wire.Cause]uint64{wire.CauseReset: 1}, map[wire.Cause]uint64{wire.CauseReset: 1, wire.CauseStalled: 2}
	entry("allsky-1", "2026-11-21", wire.StepReceived, "gateway-0", first)
	entry("allsky-1", "2026-11-21", wire.StepReceived, "gateway-1", wire.Totals{}, second, third)
	entry("allsky-1", "2026-11-20", wire.StepReceived, "gateway-0", objects(9, 90))
	entry("allsky-1", "2026-11-20", wire.StepAnnounced, wire.ArchivistWriter, objects(9, 90))
	entry("allsky-1", "2026-11-21", wire.StepDuplicates, wire.ArchivistWriter, objects(1, 10, "a"))
	entry("allsky-1", "2026-11-20", wire.StepDamaged, wire.ArchivistWriter, objects(2, 20))
	received := datagrams(600, 6000)
	received.Dropped, received.Unknown = map[wire.Cause]uint64{wire.CauseKernelBuffer: 4}, 5
	entry("mag-1", "2026-11-21", wire.StepReceived, "gateway-1", received)
	entry("mag-1", "2026-11-21", wire.StepStored, wire.ArchivistWriter, datagrams(500, 5000))
	entry("mag-2", "2026-11-21", wire.StepReceived, "gateway-0", datagrams(60, 600))
	entry("mag-2", "2026-11-21", wire.StepStored, wire.ArchivistWriter, datagrams(30, 300), undecodable(18, 180, 12))

	status, err := js.KeyValue(t.Context(), wire.StatusBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	for gateway, at := range map[string]time.Time{"gateway-0": now.Add(-time.Second), "gateway-1": now.Add(-time.Hour)} {
		data, err := wire.Encode(wire.GatewayStatus{Gateway: gateway, ReportedAt: at})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := status.Put(t.Context(), wire.GatewayStatusKey(gateway), data); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLedger(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{Operator: true, TLS: true, Domain: site})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	now := time.Now()
	putEntries(t, js, now)
	s := &selection{}
	all, err := ReadLedger(t.Context(), js, site, s, now)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 4 || all[0].Day != "2026-11-20" || all[1].Day != "2026-11-21" || all[2].Instrument != "mag-1" {
		t.Fatalf("got %+v", all)
	}
	today := all[1]
	if today.Received.Objects != 4 || today.Received.ObjectBytes != 35 || today.Received.Unfinished[wire.CauseReset] != 2 || today.Duplicates.Objects != 1 {
		t.Errorf("sums: %+v", today)
	}
	if today.Received.Digest != objects(0, 0, "a", "b", "c", "d").Digest {
		t.Errorf("digest sum: %s", today.Received.Digest)
	}
	stale := map[string]bool{}
	for _, w := range today.Writers {
		stale[w.Writer] = w.Stale
	}
	if diff := cmp.Diff(map[string]bool{"_archivist": false, "gateway-0": false, "gateway-1": true}, stale); diff != "" {
		t.Errorf("stale writers (-want +got):\n%s", diff)
	}
	if today.Agree || !all[0].Agree {
		t.Errorf("agree: today %v, yesterday %v", today.Agree, all[0].Agree)
	}
	s.instruments, s.day = []string{"allsky-1"}, "2026-11-20"
	if some, err := ReadLedger(t.Context(), js, site, s, now); err != nil || len(some) != 1 || some[0].Day != "2026-11-20" {
		t.Errorf("one day: %+v, %v", some, err)
	}
	var table bytes.Buffer
	printLedgers(&table, site, all)
	times := strings.NewReplacer(wire.FormatTime(now.Add(-time.Hour).Truncate(time.Second)), "<an hour ago>",
		wire.FormatTime(all[0].streamMade.UTC().Truncate(time.Second)), "<now>")
	golden(t, "testdata/ledger.txt", times.Replace(table.String()))
}

// A gateway that was drained said its last figures, and is not waited for; one that
// stopped before they were written, or vanished, is named, and what to do.
func TestLedgerOfDrainedGateways(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	testenv.CreateSite(t, js, site)
	now := time.Now()
	hour := now.Add(-time.Hour)
	reports := map[string]wire.GatewayStatus{
		"gateway-0": {ReportedAt: now}, "gateway-1": {ReportedAt: hour, Stopped: true},
		"gateway-2": {ReportedAt: hour, Stopped: true, Unwritten: true}, "gateway-3": {ReportedAt: hour},
	}
	ledger, err := js.KeyValue(t.Context(), wire.LedgerBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	status, err := js.KeyValue(t.Context(), wire.StatusBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	put := func(step wire.Step, writer string, of map[string]wire.Totals) {
		t.Helper()
		entry, err := wire.Encode(wire.LedgerEntry{Incarnations: of})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ledger.Put(t.Context(), wire.LedgerKey("allsky-1", wire.DayOf(now), step, writer), entry); err != nil {
			t.Fatal(err)
		}
	}
	announced := map[string]wire.Totals{}
	for gateway, report := range reports {
		report.Gateway = gateway
		announced[gateway] = objects(1, 10, gateway)
		put(wire.StepReceived, gateway, map[string]wire.Totals{gateway: announced[gateway]})
		data, err := wire.Encode(report)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := status.Put(t.Context(), wire.GatewayStatusKey(gateway), data); err != nil {
			t.Fatal(err)
		}
	}
	put(wire.StepAnnounced, wire.ArchivistWriter, announced)
	all, err := ReadLedger(t.Context(), js, site, &selection{}, now)
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	got := strings.Join(all[0].Differences, "\n")
	if len(all[0].Differences) != 2 || !strings.Contains(got, "gateway-2 stopped at") || !strings.Contains(got, "gateway-3 has not reported since") ||
		!strings.Contains(got, "substorm spool abandon gateway-3") {
		t.Errorf("differences:\n%s", got)
	}
	for gateway := range reports {
		if gateway > "gateway-1" {
			if err := status.Delete(t.Context(), wire.GatewayStatusKey(gateway)); err != nil { // as spool abandon does
				t.Fatal(err)
			}
		}
	}
	if all, err = ReadLedger(t.Context(), js, site, &selection{}, now); err != nil || len(all) != 1 || !all[0].Agree {
		t.Errorf("after a clean scale-in: %+v, %v", all, err)
	}
}

var update = flag.Bool("update", false, "write golden files anew")

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; make golden rewrites it):\n%s", file, diff)
	}
}

// TestLedgerFromFlags: the command, without a cluster.
func TestLedgerFromFlags(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	putEntries(t, js, time.Now())
	out, _ := must(t, "ledger", "--code", site, "--nats-servers", server.URL(), "--instrument", "mag-1", "-o", "json")
	var l Ledger
	if err := json.Unmarshal([]byte(out), &l); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if l.Received.Datagrams != 600 || l.Received.Unknown != 5 || l.Stored.Datagrams != 500 || l.Agree {
		t.Errorf("got %s", out)
	}
	if out, _ := must(t, "ledger", "--code", site, "--nats-servers", server.URL(), "--day", "1999-01-01"); !strings.Contains(out, "has nothing here") {
		t.Errorf("got %s", out)
	}
	if _, _, err := run(t, "ledger", "--code", "other", "--nats-servers", server.URL()); err == nil || !strings.Contains(err.Error(), "is the Site ready?") {
		t.Errorf("of a Site that is not there: %v", err)
	}
}
