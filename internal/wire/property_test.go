// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// A record reads as it was written, whatever it is.

func anyTime() *rapid.Generator[time.Time] {
	return rapid.Custom(func(t *rapid.T) time.Time {
		return time.Unix(rapid.Int64Range(1, 1<<33).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).UTC()
	})
}

func anyDigest() *rapid.Generator[Digest] {
	return rapid.Custom(func(t *rapid.T) Digest {
		return Digest(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest"))
	})
}

func label() *rapid.Generator[string] {
	return rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?`)
}

func anyRecord() *rapid.Generator[Record] {
	return rapid.Custom(func(t *rapid.T) Record {
		r := Record{
			ID: rapid.StringN(1, 40, -1).Draw(t, "id"), Size: rapid.Int64Min(0).Draw(t, "size"), Digest: anyDigest().Draw(t, "sha"),
			Name: rapid.String().Draw(t, "name"), State: rapid.SampledFrom([]State{StateCurrent, StateDuplicate, StateSuperseded}).Draw(t, "state"),
			ReceivedAt: anyTime().Draw(t, "received"), TimeSource: TimeSourceReceived, Gateway: label().Draw(t, "gateway"),
		}
		r.Key = "o/" + label().Draw(t, "site") + "/" + label().Draw(t, "instrument") + "/n/" + r.ID
		if rapid.Bool().Draw(t, "observed") {
			r.ObservedFrom, r.ObservedTo = ptr(anyTime().Draw(t, "from")), ptr(anyTime().Draw(t, "to"))
		}
		if rapid.Bool().Draw(t, "segment") {
			r.Segment = &SegmentRange{Channel: label().Draw(t, "channel"), First: rapid.Uint64().Draw(t, "first"), Last: rapid.Uint64().Draw(t, "last"),
				Undecodable: rapid.Uint64().Draw(t, "undecodable")}
		}
		return r
	})
}

func TestNoticeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyRecord().Draw(t, "record")
		site, instrument, err := InstrumentOfKey(r.Key)
		if err != nil {
			t.Fatal(err)
		}
		want := Notice{Site: site, Instrument: instrument, Record: r}
		data, err := Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode[Notice](data)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("notice: %v\n%s", err, diff)
		}
		metadata, err := ObjectMetadata(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err = NoticeFromMetadata(r.Key, metadata)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("metadata: %v\n%s", err, diff)
		}
	})
}

func TestManifestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Manifest{
			Header:  ManifestHeader{Site: label().Draw(t, "site"), Instrument: label().Draw(t, "instrument"), Day: DayOf(anyTime().Draw(t, "day"))},
			Records: rapid.SliceOfN(anyRecord(), 0, 20).Draw(t, "records"),
		}
		data, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeManifest(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.Records, got.Records, comparing); diff != "" {
			t.Fatalf("records:\n%s", diff)
		}
		if got.Header.Entries+got.Header.Duplicates != len(want.Records) || got.Header.Day != want.Header.Day {
			t.Fatalf("header: %+v", got.Header)
		}
		for _, r := range got.Records {
			from, to, told := r.ObservedSpan()
			if r.State == StateDuplicate || !told {
				continue
			}
			if from.Before(*got.Header.ObservedFrom) || to.After(*got.Header.ObservedTo) {
				t.Fatalf("header says %v to %v, a record %v to %v", got.Header.ObservedFrom, got.Header.ObservedTo, from, to)
			}
		}
	})
}

func TestTelemetryRoundTrip(t *testing.T) {
	addresses := rapid.Custom(func(t *rapid.T) netip.Addr {
		if rapid.Bool().Draw(t, "4") {
			return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address")))
		}
		return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "address"))).Unmap()
	})
	datagrams := rapid.Custom(func(t *rapid.T) Datagram {
		return Datagram{
			ReceivedAt: anyTime().Draw(t, "received"), Source: netip.AddrPortFrom(addresses.Draw(t, "source"), rapid.Uint16().Draw(t, "port")),
			DestinationPort: rapid.Uint16().Draw(t, "destination"), Payload: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(datagrams, 0, 20).Draw(t, "datagrams")
		message := AppendTelemetryHeader(nil, label().Draw(t, "instrument"), label().Draw(t, "channel"))
		for _, d := range want {
			before := len(message)
			message = AppendDatagram(message, d)
			if grown := len(message) - before; grown > len(d.Payload)+MaxDatagramOverhead {
				t.Fatalf("a datagram of %d bytes took %d", len(d.Payload), grown)
			}
		}
		got, err := decodeTelemetry(message)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, comparing); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestReceiptRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Receipt{Digest: anyDigest().Draw(t, "digest"), Bytes: rapid.Int64Min(0).Draw(t, "bytes")}
		if rapid.Bool().Draw(t, "refused") {
			want = Receipt{Refused: Cause(rapid.StringMatching(`[A-Z][A-Za-z0-9]{0,63}`).Draw(t, "cause"))}
		}
		if got, err := ParseReceipt(want.Line()); err != nil || got != want {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
	})
}

// TestAppendDatagramAllocatesNothing: the receive path depends on it.
func TestAppendDatagramAllocatesNothing(t *testing.T) {
	buffer := make([]byte, 0, MaxTelemetrySize)
	for _, d := range sampleDatagrams() {
		if n := testing.AllocsPerRun(100, func() { _ = AppendDatagram(buffer, d) }); n != 0 {
			t.Errorf("%v allocations for a datagram from %s", n, d.Source)
		}
	}
}

// A manifest that is written record by record is like one that is written whole.
func TestManifestWriter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Manifest{Header: ManifestHeader{Format: Format, Site: "thule", Instrument: "allsky-1", Day: "2026-11-21", Writer: "w", Incarnation: "i",
			Replaces: []string{"a", "b"}}, Records: rapid.SliceOf(anyRecord()).Draw(t, "records")}
		var lines bytes.Buffer
		w, err := NewManifestWriter(&lines, want.Header)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range want.Records {
			if err := w.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		head, err := w.Close()
		if err != nil {
			t.Fatal(err)
		}
		data, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		whole, err1 := DecodeManifest(bytes.NewReader(data))
		streamed, err2 := DecodeManifest(bytes.NewReader(append(head, lines.Bytes()...)))
		if diff := cmp.Diff(whole, streamed); err1 != nil || err2 != nil || diff != "" {
			t.Fatalf("%v, %v (-whole +streamed):\n%s", err1, err2, diff)
		}
	})
}
