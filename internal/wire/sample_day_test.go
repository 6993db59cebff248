// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"
)

func sampleDayFile() DayFile {
	line, err := Encode(LedgerEntry{Incarnations: map[string]Totals{"01k9zqv7r3": {Objects: 3, ObjectBytes: 15, Acknowledged: 2}}})
	if err != nil {
		panic(err.Error())
	}
	return DayFile{
		Header: DayFileHeader{Format: Format, Kind: KindLedger, Site: "thule", Day: "2026-11-19", Version: 2, ClosedAt: sampleTime, Entries: 1,
			Writer: "gateway-1", Incarnation: "01k9zqv7r4"},
		Entries: []DayEntry{{Key: LedgerKey("allsky-1", "2026-11-19", StepReceived, "gateway-0"), Value: json.RawMessage(line)}},
	}
}

func sampleClosingCursor() ClosingCursor {
	return ClosingCursor{Epoch: "1a1fb67140b", Revision: 4711, Open: []Day{"2026-11-20", "2026-11-21"}}
}

func sampleLedgerStatus() LedgerStatus {
	return LedgerStatus{ReportedAt: sampleTime, ClosedTo: "2026-11-18",
		WaitsFor: "gateway gateway-2 holds 3 objects in its spool, the oldest received 2026-11-19T22:59:58Z", Reopened: []Day{"2026-11-19"}}
}

func sampleExpiryStatus() ExpiryStatus {
	return ExpiryStatus{ReportedAt: sampleTime, Count: 1,
		Clocks:  "the clocks do not agree: this gateway's says 2027-11-21T23:59:58Z, the NATS server's 2026-11-21T23:59:58Z: correct the one that is wrong (NTP)",
		Stopped: []StoppedExpiry{{Instrument: "allsky-1", Days: 7, SharePercent: 63.2, MaxShare: 10}}}
}

func sampleScrubStatus() ScrubStatus {
	last, pass := sampleNextScrubCursor().Passes()
	return ScrubStatus{ReportedAt: sampleTime, LastPass: last, Pass: pass}
}

func sampleDayGaps() DayGaps {
	at := sampleTime.Truncate(24 * time.Hour)
	return DayGaps{CheckedAt: sampleTime, Until: sampleTime.Add(-time.Minute), Due: 8640, DueMillis: 43_200_000,
		Excused: []TimeSpan{{From: at, To: at.Add(12 * time.Hour)}},
		Gaps: []MissingGap{
			{Channel: "raw", From: at.Add(13 * time.Hour), To: ptr(at.Add(14 * time.Hour)), Missing: 719, Cause: GapLink,
				FoundAt: at.Add(14 * time.Hour), ClosedAt: ptr(at.Add(20 * time.Hour))},
			{Channel: "raw", From: at.Add(23 * time.Hour), Missing: 710, Cause: GapInstrument, FoundAt: at.Add(23 * time.Hour)},
		}}
}

func sampleDownloads() Downloads {
	return Downloads{By: []DownloadCount{
		{Class: "Person", Requests: 900, NotModified: 800, Refused: 1, Bytes: 12_000_000},
		{Reader: "model", Class: "Robot", Requests: 24, Bytes: 480_000},
	}}
}

// TestDayFile: what is read is what was written; another count is refused.
func TestDayFile(t *testing.T) {
	f := sampleDayFile()
	f.Entries = append(f.Entries, DayEntry{Key: LedgerKey("mag<1>", "2026-11-19", StepStored, ArchivistWriter), Value: json.RawMessage(`{"a":"<&>"}`)})
	data, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeDayFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if got.Header.Entries != 2 || string(got.Entries[1].Value) != `{"a":"<&>"}` {
		t.Errorf("got %+v", got)
	}
	for name, text := range map[string]string{
		"a count that is wrong": `{"format":1,"kind":"ledger","entries":2}` + "\n" + `{"key":"a.2026-11-19.stored.b","value":1}`,
		"a key of nothing":      `{"format":1,"kind":"ledger","entries":1}` + "\n" + `{"key":"a","value":1}`,
		"no JSON":               `{"format":1,"kind":"ledger","entries":1}` + "\n" + `{`,
		"nothing":               "",
	} {
		if _, err := DecodeDayFile(bytes.NewReader(compress(t, text))); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, kind := range []DayKind{KindLedger, KindGaps} {
		key := DayFileKey(kind, "thule", "2026-11-19", 3)
		if k, site, day, version, err := ParseDayFileKey(key); err != nil || k != kind || site != "thule" || day != "2026-11-19" || version != 3 {
			t.Errorf("%s reads as %s %s %s %d, %v", key, k, site, day, version, err)
		}
	}
	if _, _, _, _, err := ParseDayFileKey("ledger/thule/2026-11-19/v-03.jsonl.zst"); err == nil {
		t.Error("a number with a zero before it is read")
	}
}

// FuzzDecodeDayFile: nothing that is not a closed day is taken for one.
func FuzzDecodeDayFile(f *testing.F) {
	data, err := sampleDayFile().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := DecodeDayFile(bytes.NewReader(data))
		if err != nil {
			return
		}
		if len(got.Entries) != got.Header.Entries {
			t.Fatalf("%d entries, its header counts %d", len(got.Entries), got.Header.Entries)
		}
	})
}

// sampleObserving is an Instrument that observes by night.
func sampleObserving() InstrumentEntry {
	e := sampleInstrument()
	e.Retired, e.Maintenance, e.LateAfterMillis = false, true, 21_600_000
	e.Observes = &ObservesEntry{Mode: ObservesSunBelow, SunElevationDegrees: "-10", Latitude: "56.38", Longitude: "-94.64"}
	return e
}

// sampleDaily is an instrument that observes at times of day.
func sampleDaily() InstrumentEntry {
	e := sampleInstrument()
	e.Observes = &ObservesEntry{Mode: ObservesDaily, From: "18:00", To: "06:30"}
	return e
}
