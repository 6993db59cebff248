// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Parsers of what comes from the network or the bucket: none may panic or hang,
// every refusal says why, and what is accepted reads the same again.

func seed(f *testing.F, files ...string) {
	f.Helper()
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(goldenFolder, file))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

// explained fails for an error that is neither of the two that readers promise.
func explained(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrNewerFormat) {
		t.Fatalf("error of no known kind: %v", err)
	}
}

func FuzzParseReceipt(f *testing.F) {
	seed(f, "receipt-stored.txt", "receipt-refused.txt")
	f.Add([]byte("refused StoreUnavailable retry=30\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		line := string(data)
		r, err := ParseReceipt(line)
		if err != nil {
			explained(t, err)
			return
		}
		text := strings.TrimSuffix(r.Line(), "\n")
		if rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), text); !ok || rest != "" && rest[0] != ' ' {
			t.Fatalf("%q passes for %q", line, text)
		}
	})
}

func FuzzParseDigest(f *testing.F) {
	f.Add(sampleDigest("frame").String())
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDigest(s)
		if err != nil {
			explained(t, err)
		} else if d.String() != s {
			t.Fatalf("%q reads as %s", s, d)
		}
	})
}

func FuzzDatagrams(f *testing.F) {
	seed(f, "telemetry.binpb")
	f.Fuzz(func(t *testing.T, message []byte) {
		again := AppendTelemetryHeader(nil, "i", "c")
		var first []Datagram
		for d, err := range Datagrams(message) {
			if err != nil {
				explained(t, err)
				return
			}
			first = append(first, d)
			again = AppendDatagram(again, d)
		}
		second, err := decodeTelemetry(again)
		if err != nil {
			t.Fatal(err)
		}
		for i := range first { // a 16-byte form of an IPv4 address is written with 4 bytes
			first[i].Source = netip.AddrPortFrom(first[i].Source.Addr().Unmap(), first[i].Source.Port())
		}
		if diff := cmp.Diff(first, second, comparing); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzDecodeManifest(f *testing.F) {
	seed(f, "manifest-part.jsonl.zst", "manifest-day.jsonl.zst")
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := DecodeManifest(bytes.NewReader(data))
		if err != nil {
			explained(t, err)
			return
		}
		rereadManifest(t, m)
	})
}

// FuzzManifestLines fuzzes what is inside the compression.
func FuzzManifestLines(f *testing.F) {
	for _, m := range []Manifest{samplePart(), sampleCompacted(), {Header: ManifestHeader{Format: 1}}} {
		var lines bytes.Buffer
		enc := json.NewEncoder(&lines)
		_ = enc.Encode(m.Header)
		for _, r := range m.Records {
			_ = enc.Encode(r)
		}
		f.Add(lines.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		reader, err := readManifestHeader(bytes.NewReader(data))
		if err != nil {
			explained(t, err)
			return
		}
		m, err := reader.rest()
		if err != nil {
			explained(t, err)
			return
		}
		rereadManifest(t, m)
	})
}

func rereadManifest(t *testing.T, m Manifest) {
	t.Helper()
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := DecodeManifest(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m.Records, again.Records, comparing); diff != "" {
		t.Fatal(diff)
	}
}

func FuzzNoticeFromMetadata(f *testing.F) {
	for _, n := range []Notice{sampleNotice(sampleRaw(), "allsky-1"), sampleNotice(sampleSegment(), "mag-1")} {
		m, err := ObjectMetadata(n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(n.Key, m[MetadataFormat], m[MetadataInstrument], m[MetadataRecord])
	}
	f.Fuzz(func(t *testing.T, key, format, instrument, record string) {
		n, err := NoticeFromMetadata(key, map[string]string{MetadataFormat: format, MetadataInstrument: instrument, MetadataRecord: record})
		if err != nil {
			explained(t, err)
			return
		}
		m, err := ObjectMetadata(n)
		if err != nil {
			t.Fatal(err)
		}
		again, err := NoticeFromMetadata(key, m)
		if diff := cmp.Diff(n, again, comparing); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}

func fuzzRecord[T any](f *testing.F, files ...string) {
	seed(f, files...)
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := Decode[T](data)
		if err != nil {
			explained(t, err)
			return
		}
		encoded, err := Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode[T](encoded)
		if diff := cmp.Diff(v, again, comparing); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}

func FuzzDecodeNotice(f *testing.F) {
	fuzzRecord[Notice](f, "notice-raw.json", "notice-imported.json", "notice-segment.json", "notice-duplicate.json")
}
func FuzzDecodeArchiveRequest(f *testing.F) {
	fuzzRecord[ArchiveRequest](f, "request-archive.json")
}
func FuzzDecodeArchiveDecision(f *testing.F) {
	fuzzRecord[ArchiveDecision](f, "decision-done.json", "decision-refused.json")
}
func FuzzDecodeNameClaim(f *testing.F)    { fuzzRecord[NameClaim](f, "name.json") }
func FuzzDecodeUploadInfo(f *testing.F)   { fuzzRecord[UploadInfo](f, "upload-info.json") }
func FuzzDecodeUploadLength(f *testing.F) { fuzzRecord[UploadLength](f, "upload-length.json") }

func FuzzDecodeUploadDone(f *testing.F)  { fuzzRecord[UploadDone](f, "upload-done.json") }
func FuzzDecodeLedgerEntry(f *testing.F) { fuzzRecord[LedgerEntry](f, "ledger.json") }
func FuzzDecodeInstrumentEntry(f *testing.F) {
	fuzzRecord[InstrumentEntry](f, "registry-instrument.json", "registry-framings.json", "registry-http.json", "registry-access.json")
}
func FuzzDecodeRegistryComplete(f *testing.F) {
	fuzzRecord[RegistryComplete](f, "registry-complete.json")
}
func FuzzDecodeGatewayStatus(f *testing.F) {
	fuzzRecord[GatewayStatus](f, "status-gateway.json")
}
func FuzzDecodeInstrumentStatus(f *testing.F) {
	fuzzRecord[InstrumentStatus](f, "status-instrument.json")
}
func FuzzDecodeSegmentCursor(f *testing.F) {
	fuzzRecord[SegmentCursor](f, "cursor-segment.json")
}
func FuzzDecodeStreamCursor(f *testing.F) { fuzzRecord[StreamCursor](f, "cursor-stream.json") }
func FuzzDecodeCompactCursor(f *testing.F) {
	fuzzRecord[CompactCursor](f, "cursor-compact.json")
}
func FuzzDecodeSweepCursor(f *testing.F) { fuzzRecord[SweepCursor](f, "cursor-sweep.json") }
func FuzzDecodeForwardCursor(f *testing.F) {
	fuzzRecord[ForwardCursor](f, "cursor-forward.json")
}
func FuzzDecodeSenderStatus(f *testing.F) { fuzzRecord[SenderStatus](f, "status-sender.json") }
func FuzzDecodeForwardStatus(f *testing.F) {
	fuzzRecord[ForwardStatus](f, "status-forward.json")
}
func FuzzDecodeSurgeLevel(f *testing.F) {
	fuzzRecord[SurgeLevel](f, "surge-level.json")
}

func FuzzDecodeConditionChange(f *testing.F) {
	fuzzRecord[ConditionChange](f, "condition-change.json")
}
func FuzzDecodeRefusalStatus(f *testing.F) {
	fuzzRecord[RefusalStatus](f, "status-refusal.json")
}
func FuzzDecodeAdoption(f *testing.F)     { fuzzRecord[Adoption](f, "adoption.json") }
func FuzzDecodeSiteMarker(f *testing.F)   { fuzzRecord[SiteMarker](f, "site-marker.json") }
func FuzzDecodeGap(f *testing.F)          { fuzzRecord[Gap](f, "gap.json") }
func FuzzDecodeRefillCursor(f *testing.F) { fuzzRecord[RefillCursor](f, "cursor-refill.json") }
func FuzzDecodeDeliveryCursor(f *testing.F) {
	fuzzRecord[DeliveryCursor](f, "cursor-delivery.json")
}
func FuzzDecodePositionCursor(f *testing.F) {
	fuzzRecord[PositionCursor](f, "cursor-position.json")
}
func FuzzDecodeFilledCursor(f *testing.F) { fuzzRecord[FilledCursor](f, "cursor-filled.json") }
func FuzzDecodeSamplingRequest(f *testing.F) {
	fuzzRecord[SamplingRequest](f, "request-sampling.json")
}
func FuzzDecodeGuestEntry(f *testing.F) { fuzzRecord[GuestEntry](f, "registry-guest.json") }
func FuzzDecodeMoverEntry(f *testing.F) { fuzzRecord[MoverEntry](f, "registry-mover.json") }
func FuzzDecodeMirroredObject(f *testing.F) {
	fuzzRecord[MirroredObject](f, "mirrored-object.json")
}

func FuzzDecodeLease(f *testing.F) { fuzzRecord[Lease](f, "lease.json") }

func FuzzHeartbeat(f *testing.F) {
	seed(f, "heartbeat.json", "heartbeat-sampling.json")
	f.Add([]byte(`{"type":"command","format":1}`))
	f.Add([]byte(`{"type":"heartbeat","format":2}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		kind, err := ControlType(body)
		if err != nil {
			explained(t, err)
		}
		h, err := Decode[Heartbeat](body)
		if err != nil {
			explained(t, err)
			return
		}
		if kind != ControlHeartbeat {
			t.Fatalf("a control frame of type %q passes for a heartbeat", kind)
		}
		frame, err := h.Frame()
		if err != nil {
			return // what fits a frame may not, written our way
		}
		length, control := ParsePrefix([PrefixSize]byte(frame))
		if !control || length != int64(len(frame)-PrefixSize) {
			t.Fatalf("prefix %x of a frame of %d bytes", frame[:PrefixSize], len(frame))
		}
		again, err := Decode[Heartbeat](frame[PrefixSize:])
		if diff := cmp.Diff(h, again, comparing); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}

func FuzzHeartbeatAnswer(f *testing.F) {
	seed(f, "heartbeat-answer.txt")
	f.Add([]byte("heartbeat received=0000-01-01T0:00:00+01:00 answered=0000-01-01T00:00:00Z"))
	f.Add([]byte("heartbeat received=2026-11-21T23:59:58.5Z answered=0000-01-01T00:00:00Z next=1m\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := ParseHeartbeatAnswer(string(data))
		if err != nil {
			explained(t, err)
			return
		}
		if again, err := ParseHeartbeatAnswer(a.Line()); err != nil || again != a {
			t.Fatalf("%q reads as %v, and that as %v, %v", data, a, again, err)
		}
	})
}

func FuzzParseSampling(f *testing.F) {
	seed(f, "command-sampling.txt")
	f.Add([]byte(`command sampling {"format":1,"channels":[{"state":"Observing"},{"state":"Paused"}]}`))
	f.Add([]byte(`command sampling {"format":2}`))
	f.Add([]byte(`command other`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSampling(string(data))
		if err != nil {
			explained(t, err)
			return
		}
		line, err := s.Line()
		if err != nil {
			return // what fits a line may not, written our way
		}
		again, err := ParseSampling(line)
		if diff := cmp.Diff(s, again); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
		if strings.Count(line, "\n") != 1 {
			t.Fatalf("%q is not one line", line)
		}
	})
}
