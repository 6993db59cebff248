// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// call runs one of the commands that stand beside `substorm archive`.
func call(t *testing.T, cmd *cobra.Command, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// putValue writes an entry of a bucket.
func putValue(t *testing.T, js jetstream.JetStream, bucket, key string, record any) {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), bucket)
	if err != nil {
		t.Fatal(err)
	}
	value, err := wire.Encode(record)
	if err == nil {
		_, err = kv.Put(t.Context(), key, value)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// putLedger writes what the fixture's gateways and archivist counted.
func putLedger(t *testing.T, js jetstream.JetStream, f *fixture) {
	t.Helper()
	sum := func(records ...wire.Record) (t wire.Totals) {
		for _, r := range records {
			t = t.Plus(wire.Totals{Objects: 1, ObjectBytes: uint64(r.Size), Digest: r.Digest})
		}
		return t
	}
	entry := func(instrument string, day wire.Day, step wire.Step, writer string, is wire.Totals) {
		putValue(t, js, wire.LedgerBucket(site), wire.LedgerKey(instrument, day, step, writer),
			wire.LedgerEntry{Incarnations: map[string]wire.Totals{"one": is}})
	}
	for step, writer := range map[wire.Step]string{wire.StepReceived: "gateway-0", wire.StepAnnounced: wire.ArchivistWriter} {
		entry("allsky-1", "2026-11-20", step, writer, sum(f.earlier))
		entry("allsky-1", "2026-11-21", step, writer, sum(f.frame, f.late, f.duplicate))
	}
	entry("mag-1", "2026-11-21", wire.StepReceived, "gateway-0", datagrams(600, 6000))
	entry("allsky-1", "2026-11-21", wire.StepDuplicates, wire.ArchivistWriter, sum(f.duplicate))
	entry("mag-1", "2026-11-21", wire.StepStored, wire.ArchivistWriter, datagrams(600, 6000))
}

func putGapsAndDownloads(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	day := func(text string) time.Time {
		at, err := wire.Day(text).Start()
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	first, second, third := day("2026-11-20"), day("2026-11-21"), day("2026-11-22")
	at := func(d time.Time) *time.Time { return &d }
	putValue(t, js, wire.GapsBucket(site), wire.GapsKey("allsky-1", "2026-11-20"), wire.DayGaps{CheckedAt: third, Until: second, Due: 1440, DueMillis: 86_400_000,
		Gaps: []wire.MissingGap{
			{From: first.Add(2 * time.Hour), To: at(first.Add(3 * time.Hour)), Missing: 59, Cause: wire.GapLink, FoundAt: second, ClosedAt: at(third)},
			{From: first.Add(22 * time.Hour), To: &second, Missing: 119, Cause: wire.GapInstrument, FoundAt: second},
		}})
	putValue(t, js, wire.GapsBucket(site), wire.GapsKey("allsky-1", "2026-11-21"), wire.DayGaps{CheckedAt: third, Until: third, Due: 1440, DueMillis: 86_400_000,
		Gaps: []wire.MissingGap{
			{From: second, To: at(second.Add(time.Hour)), Missing: 59, Cause: wire.GapInstrument, FoundAt: third},
			{From: second.Add(23 * time.Hour), Missing: 59, Cause: wire.GapLink, FoundAt: third},
		}})
	for _, incarnation := range []string{"one", "two"} {
		putValue(t, js, wire.DownloadsBucket(site), wire.DownloadsKey("allsky-1", "2026-11-21", "feed-0", incarnation), wire.Downloads{By: []wire.DownloadCount{
			{Class: "Person", Requests: 10, NotModified: 7, Bytes: 2048}, {Reader: "model", Class: "Robot", Requests: 3, Refused: 1, Bytes: 1 << 20}}})
	}
	putValue(t, js, wire.DownloadsBucket(site), wire.DownloadsKey(wire.NoInstrument, "2026-11-21", "feed-0", "one"),
		wire.Downloads{By: []wire.DownloadCount{{Class: "Robot", Requests: 5, Bytes: 100}}})
	ended := third
	putValue(t, js, wire.StatusBucket(site), wire.ScrubStatusKey, wire.ScrubStatus{LastPass: &wire.ScrubPass{BegunAt: second, EndedAt: &ended, Objects: 4}})
	putValue(t, js, wire.StatusBucket(site), wire.LedgerStatusKey, wire.LedgerStatus{ClosedTo: "2026-11-20"})
}

// TestReport: what the archive lists is what the ledger counts, and where it is not the
// command says where, and fails.
func TestReport(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	server := testenv.NATS(t, testenv.NATSOptions{})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	putLedger(t, js, f)
	putGapsAndDownloads(t, js)
	flags := append(f.flags(t), "--nats-servers", server.URL())

	out, err := call(t, Command(), append(append([]string{"report"}, flags...), "--since", "2026-11-20", "--until", "2026-11-21")...)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	golden(t, "testdata/report.txt", out)

	var r Report
	out, err = call(t, Command(), append(append([]string{"report"}, flags...), "--day", "2026-11-21", "-o", "json")...)
	if err == nil {
		err = json.Unmarshal([]byte(out), &r)
	}
	if err != nil || !r.Agree || len(r.Instruments) != 2 || r.Instruments[0].Objects != 2 || r.Instruments[0].Duplicates != 1 {
		t.Errorf("as JSON: %v\n%s", err, out)
	}

	// One more was announced than is listed, and another's bytes are not those.
	putValue(t, js, wire.LedgerBucket(site), wire.LedgerKey("allsky-1", "2026-11-20", wire.StepAnnounced, "another"),
		wire.LedgerEntry{Incarnations: map[string]wire.Totals{"one": objects(1, 10, "x")}})
	putValue(t, js, wire.LedgerBucket(site), wire.LedgerKey("mag-1", "2026-11-21", wire.StepStored, wire.ArchivistWriter),
		wire.LedgerEntry{Incarnations: map[string]wire.Totals{"one": datagrams(600, 5999)}})
	out, err = call(t, Command(), append(append([]string{"report"}, flags...), "--since", "2026-11-20", "--until", "2026-11-21")...)
	if !errors.Is(err, errReportDiffers) || !strings.Contains(out, "allsky-1 2026-11-20: objects: 2 announced, 1 listed") ||
		!strings.Contains(out, "mag-1 2026-11-21: datagrams: 600 (5999 bytes) stored, 600 (6000 bytes) in listed segments") {
		t.Errorf("differing: %v\n%s", err, out)
	}
}

// Late is what is listed as backfill, whatever lateAfter is by now.
func TestReportLate(t *testing.T) {
	var i InstrumentReport
	for _, backfill := range []bool{true, false} {
		r := wire.Record{ReceivedAt: time.Now(), State: wire.StateCurrent, Backfill: backfill}
		r.SetObserved(r.ReceivedAt.Add(-time.Hour), time.Minute)
		i.add(&r)
	}
	if i.Late != 1 {
		t.Errorf("%d are late, want 1", i.Late)
	}
}

// TestReportMirrors: what partners have is what they wrote into the ledger, and purges
// that they did not confirm are named.
func TestReportMirrors(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	server := testenv.NATS(t, testenv.NATSOptions{})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	putLedger(t, js, f)
	mirrored := func(instrument, partner string, is wire.Totals) {
		putValue(t, js, wire.LedgerBucket(site), wire.LedgerKey(instrument, "2026-11-21", wire.StepMirrored, partner),
			wire.LedgerEntry{Incarnations: map[string]wire.Totals{"one": is}})
	}
	mirrored("allsky-1", "eiscat", wire.Totals{Objects: 2})
	mirrored("mag-1", "eiscat", wire.Totals{Datagrams: 600})
	mirrored("allsky-1", "madrigal", wire.Totals{Objects: 1})
	removal := wire.Removal{Instrument: "allsky-1", Day: "2026-11-21", ID: f.late.ID, Reason: "private", By: "anna", At: f.late.ReceivedAt,
		Confirmed: map[string]time.Time{"madrigal": f.late.ReceivedAt}}
	putValue(t, js, wire.CursorBucket(site), removal.Key(), removal)
	flags := append(f.flags(t), "--nats-servers", server.URL(), "--day", "2026-11-21")
	out, err := call(t, Command(), append([]string{"report"}, flags...)...)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	golden(t, "testdata/report-mirrors.txt", out)
	var r Report
	if out, err = call(t, Command(), append(append([]string{"report"}, flags...), "-o", "json")...); err == nil {
		err = json.Unmarshal([]byte(out), &r)
	}
	if err != nil || !slices.Equal(r.Partners, []string{"eiscat", "madrigal"}) || r.Instruments[0].Mirrored["eiscat"] != 2 || r.Instruments[0].Unconfirmed["eiscat"] != 1 {
		t.Errorf("as JSON: %v\n%s", err, out)
	}

	putValue(t, js, wire.CursorBucket(site), wire.MirrorConfirmedKey("eiscat", removal), wire.MirrorConfirmed{At: f.late.ReceivedAt})
	if out, err = call(t, Command(), append([]string{"report"}, flags...)...); err != nil || strings.Contains(out, "not confirmed by partners") {
		t.Errorf("eiscat has confirmed, which the archivist has not seen yet: %v\n%s", err, out)
	}
}

// TestListedWithoutALedger: a day without counts in the ledger is no agreement either.
func TestListedWithoutALedger(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	server := testenv.NATS(t, testenv.NATSOptions{})
	testenv.CreateSite(t, server.JetStream(t), site)
	out, err := call(t, Command(), append(append([]string{"report"}, f.flags(t)...), "--nats-servers", server.URL(), "--day", "2026-11-20")...)
	if !errors.Is(err, errReportDiffers) || !strings.Contains(out, "the ledger says nothing of the day") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestGapsCommand: one over midnight is one, and those that are closed show where they
// are asked for.
func TestGapsCommand(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	flags := []string{"--code", site, "--nats-servers", server.URL()}
	if out, err := call(t, Command(), append([]string{"gaps"}, flags...)...); err != nil || !strings.Contains(out, "nothing was compared yet") {
		t.Errorf("before: %v\n%s", err, out)
	}
	putGapsAndDownloads(t, js)
	for name, c := range map[string]struct {
		args []string
		want []string
		not  string
	}{
		"open": {nil, []string{"allsky-1    -        2026-11-20T22:00:00Z  2026-11-21T01:00:00Z  3h0m0s",
			"2026-11-21T23:00:00Z  -", "\nInstruments were compared up to 2026-11-22T00:00:00Z.\n"}, "2026-11-20T02:00:00Z"},
		"lost":  {[]string{"--cause", "Lost"}, []string{"no gaps up to 2026-11-22T00:00:00Z\n"}, "allsky"},
		"all":   {[]string{"--all"}, []string{"2026-11-20T02:00:00Z  2026-11-20T03:00:00Z  1h0m0s", "59       Link"}, "nothing"},
		"cause": {[]string{"--cause", "Link"}, []string{"2026-11-21T23:00:00Z"}, "2026-11-20T22:00:00Z"},
		"day":   {[]string{"--day", "2026-11-20"}, []string{"2026-11-20T22:00:00Z  2026-11-21T00:00:00Z"}, "2026-11-21T23"},
		"none":  {[]string{"--instrument", "mag-1", "--day", "2026-11-20"}, []string{"nothing was compared yet"}, "allsky"},
		"json":  {[]string{"-o", "json"}, []string{`{"instrument":"allsky-1","from":"2026-11-20T22:00:00Z","to":"2026-11-21T01:00:00Z","missing":179,"cause":"Instrument"`}, "nothing"},
	} {
		out, err := call(t, Command(), append(append([]string{"gaps"}, flags...), c.args...)...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: lacks %q:\n%s", name, want, out)
			}
		}
		if strings.Contains(out, c.not) {
			t.Errorf("%s: has %q:\n%s", name, c.not, out)
		}
	}
	if _, err := call(t, Command(), append(append([]string{"gaps"}, flags...), "--cause", "Weather")...); err == nil {
		t.Error("a cause that there is not is taken")
	}
}
