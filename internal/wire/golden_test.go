// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// golden writes files that do not exist yet. It never changes one: what was
// released stays readable for ever. A new format gets a folder of its own.
var golden = flag.Bool("golden", false, "write missing golden files")

const goldenFolder = "testdata/v1"

// goldenRecord is a record in its released format.
type goldenRecord struct {
	file string
	// encode of the sample equals the file byte for byte, where set.
	encode func() ([]byte, error)
	decode func([]byte) (any, error)
	want   any
}

func decoded[T any](f func([]byte) (T, error)) func([]byte) (any, error) {
	return func(data []byte) (any, error) {
		v, err := f(data)
		return v, err
	}
}

func goldenRecords() []goldenRecord {
	importedNotice := sampleNotice(sampleImported(), "allsky-1")
	rawNotice, segmentNotice := sampleNotice(sampleRaw(), "allsky-1"), sampleNotice(sampleSegment(), "mag-1")
	return append(append(goldenFeedRecords(), goldenIndexRecords()...), []goldenRecord{
		{"notice-raw.json", encoded(rawNotice), decoded(Decode[Notice]), rawNotice},
		{"notice-imported.json", encoded(importedNotice), decoded(Decode[Notice]), importedNotice},
		{"notice-segment.json", encoded(segmentNotice), decoded(Decode[Notice]), segmentNotice},
		{"notice-backfill.json", encoded(sampleNotice(sampleBackfill(), "mag-1")), decoded(Decode[Notice]), sampleNotice(sampleBackfill(), "mag-1")},
		{"notice-duplicate.json", encoded(sampleNotice(sampleDuplicate(), "allsky-1")), decoded(Decode[Notice]), sampleNotice(sampleDuplicate(), "allsky-1")},
		{"notice-published.json", encoded(sampleNotice(samplePublished(), "allsky-1")), decoded(Decode[Notice]), sampleNotice(samplePublished(), "allsky-1")},
		{"registry-leaving.json", encoded(sampleLeaving()), decoded(Decode[InstrumentEntry]), sampleLeaving()},
		{"cursor-forward.json", encoded(sampleForwardCursor()), decoded(Decode[ForwardCursor]), sampleForwardCursor()},
		{"cursor-forward-done.json", encoded(sampleForwardCursorDone()), decoded(Decode[ForwardCursor]), sampleForwardCursorDone()},
		{"status-forward.json", encoded(sampleForwardStatus()), decoded(Decode[ForwardStatus]), sampleForwardStatus()},
		{"ledger.json", encoded(sampleLedger()), decoded(Decode[LedgerEntry]), sampleLedger()},
		{"ledger-ended.json", encoded(sampleEndedLedger()), decoded(Decode[LedgerEntry]), sampleEndedLedger()},
		{"registry-instrument.json", encoded(sampleInstrument()), decoded(Decode[InstrumentEntry]), sampleInstrument()},
		{"registry-framings.json", encoded(sampleFramings()), decoded(Decode[InstrumentEntry]), sampleFramings()},
		{"registry-packs.json", encoded(samplePacks()), decoded(Decode[InstrumentEntry]), samplePacks()},
		{"registry-access.json", encoded(sampleAccess()), decoded(Decode[InstrumentEntry]), sampleAccess()},
		{"registry-rights.json", encoded(sampleRights()), decoded(Decode[InstrumentEntry]), sampleRights()},
		{"registry-keeping.json", encoded(sampleKept()), decoded(Decode[InstrumentEntry]), sampleKept()},
		{"notice-packed.json", encoded(sampleNotice(samplePacked(), "allsky-1")), decoded(Decode[Notice]), sampleNotice(samplePacked(), "allsky-1")},
		{"notice-repacked.json", encoded(sampleNotice(sampleRepacked(), "allsky-1")), decoded(Decode[Notice]), sampleNotice(sampleRepacked(), "allsky-1")},
		{"registry-http.json", encoded(sampleHTTP()), decoded(Decode[InstrumentEntry]), sampleHTTP()},
		{"upload-info.json", encoded(sampleUpload()), decoded(Decode[UploadInfo]), sampleUpload()},
		{"upload-info-condition.json", encoded(sampleConditional()), decoded(Decode[UploadInfo]), sampleConditional()},
		{"upload-length.json", encoded(UploadLength{Length: 70_000_000}), decoded(Decode[UploadLength]), UploadLength{Length: 70_000_000}},
		{"upload-done.json", encoded(sampleUploadDone()), decoded(Decode[UploadDone]), sampleUploadDone()},
		{"registry-observes.json", encoded(sampleObserving()), decoded(Decode[InstrumentEntry]), sampleObserving()},
		{"registry-observes-daily.json", encoded(sampleDaily()), decoded(Decode[InstrumentEntry]), sampleDaily()},
		{"ledger-day.jsonl.zst", nil, func(data []byte) (any, error) { return DecodeDayFile(bytes.NewReader(data)) }, sampleDayFile()},
		{"cursor-closing.json", encoded(sampleClosingCursor()), decoded(Decode[ClosingCursor]), sampleClosingCursor()},
		{"status-ledger.json", encoded(sampleLedgerStatus()), decoded(Decode[LedgerStatus]), sampleLedgerStatus()},
		{"status-scrub.json", encoded(sampleScrubStatus()), decoded(Decode[ScrubStatus]), sampleScrubStatus()},
		{"status-expiry.json", encoded(sampleExpiryStatus()), decoded(Decode[ExpiryStatus]), sampleExpiryStatus()},
		{"missing.json", encoded(sampleDayGaps()), decoded(Decode[DayGaps]), sampleDayGaps()},
		{"downloads.json", encoded(sampleDownloads()), decoded(Decode[Downloads]), sampleDownloads()},
		{"description.json", encoded(sampleDescription()), decoded(Decode[Description]), sampleDescription()},
		{"name.json", encoded(sampleName()), decoded(Decode[NameClaim]), sampleName()},
		{"name-folder.json", encoded(sampleFolder()), decoded(Decode[NameClaim]), sampleFolder()},
		{"notice-version.json", encoded(sampleNotice(sampleNamed(), "allsky-1")), decoded(Decode[Notice]), sampleNotice(sampleNamed(), "allsky-1")},
		{"registry-identity.json", encoded(sampleIdentity()), decoded(Decode[InstrumentEntry]), sampleIdentity()},
		{"registry-listeners.json", encoded(sampleListeners()), decoded(Decode[InstrumentEntry]), sampleListeners()},
		{"registry-complete-hold.json", encoded(RegistryComplete{Revision: 12, Mirrors: 1, LegalHold: true}), decoded(Decode[RegistryComplete]), RegistryComplete{Revision: 12, Mirrors: 1, LegalHold: true}},
		{"registry-complete-mirrors.json", encoded(RegistryComplete{Revision: 12, Count: 2, Mirrors: 1}), decoded(Decode[RegistryComplete]), RegistryComplete{Revision: 12, Count: 2, Mirrors: 1}},
		{"registry-complete.json", encoded(RegistryComplete{Revision: 12, Count: 2}), decoded(Decode[RegistryComplete]), RegistryComplete{Revision: 12, Count: 2}},
		{"notice-brought.json", encoded(sampleNotice(sampleBrought(), "allsky-1")), decoded(Decode[Notice]), sampleNotice(sampleBrought(), "allsky-1")},
		{"status-gateway-copies.json", encoded(sampleGatewayWithCopies()), decoded(Decode[GatewayStatus]), sampleGatewayWithCopies()},
		{"status-gateway-load.json", encoded(sampleLoadedGateway()), decoded(Decode[GatewayStatus]), sampleLoadedGateway()},
		{"status-gateway-unwritten.json", encoded(sampleUnwrittenGateway()), decoded(Decode[GatewayStatus]), sampleUnwrittenGateway()},
		{"status-gateway.json", encoded(sampleGatewayStatus()), decoded(Decode[GatewayStatus]), sampleGatewayStatus()},
		{"status-instrument.json", encoded(sampleInstrumentStatus()), decoded(Decode[InstrumentStatus]), sampleInstrumentStatus()},
		{"status-instrument-listeners.json", encoded(sampleInstrumentListeners()), decoded(Decode[InstrumentStatus]), sampleInstrumentListeners()},
		{"status-sender.json", encoded(sampleSenderStatus()), decoded(Decode[SenderStatus]), sampleSenderStatus()},
		{"heartbeat.json", func() ([]byte, error) { f, err := sampleHeartbeat().Frame(); return f[PrefixSize:], err }, decoded(Decode[Heartbeat]), sampleHeartbeat()},
		{"status-senders.json", encoded(sampleSenders()), decoded(Decode[SenderStatus]), sampleSenders()},
		{"heartbeat-sender.json", func() ([]byte, error) { f, err := sampleHeartbeatOfOne().Frame(); return f[PrefixSize:], err }, decoded(Decode[Heartbeat]), sampleHeartbeatOfOne()},
		{"heartbeat-answer.txt", func() ([]byte, error) { return []byte(sampleHeartbeatAnswer().Line()), nil }, decodeHeartbeatAnswer, sampleHeartbeatAnswer()},
		{"status-instrument-achieved.json", encoded(sampleInstrumentAchieving()), decoded(Decode[InstrumentStatus]), sampleInstrumentAchieving()},
		{"heartbeat-sampling.json", nil, decoded(Decode[Heartbeat]), sampleHeartbeatObeying()},
		{"heartbeat-sampling-state.json", func() ([]byte, error) { f, err := sampleHeartbeatObeying().Frame(); return f[PrefixSize:], err }, decoded(Decode[Heartbeat]), sampleHeartbeatObeying()},
		{"status-sender-sampling.json", nil, decoded(Decode[SenderStatus]), sampleSenderObeying()},
		{"status-sender-sampling-state.json", encoded(sampleSenderObeying()), decoded(Decode[SenderStatus]), sampleSenderObeying()},
		{"registry-channels.json", encoded(sampleDecoded()), decoded(Decode[InstrumentEntry]), sampleDecoded()},
		{"registry-sampling.json", nil, decoded(Decode[InstrumentEntry]), sampleSampled()},
		{"registry-sampling-state.json", encoded(sampleSampled()), decoded(Decode[InstrumentEntry]), sampleSampled()},
		{"request-sampling.json", encoded(sampleRequest()), decoded(Decode[SamplingRequest]), sampleRequest()},
		{"command-sampling.txt", nil,
			func(data []byte) (any, error) { return ParseSampling(string(data)) }, sampleSampling()},
		{"command-sampling-state.txt", func() ([]byte, error) { l, err := sampleSampling().Line(); return []byte(l), err },
			func(data []byte) (any, error) { return ParseSampling(string(data)) }, sampleSampling()},
		{"cursor-segment.json", encoded(sampleCursor()), decoded(Decode[SegmentCursor]), sampleCursor()},
		{"cursor-segment-published.json", encoded(samplePublishedCursor()), decoded(Decode[SegmentCursor]), samplePublishedCursor()},
		{"notice-segment-deleted.json", encoded(sampleNotice(sampleDeletedSegment(), "mag-1")), decoded(Decode[Notice]), sampleNotice(sampleDeletedSegment(), "mag-1")},
		{"cursor-stream.json", encoded(sampleStreamCursor()), decoded(Decode[StreamCursor]), sampleStreamCursor()},
		{"cursor-sweep.json", encoded(sampleSweepCursor()), decoded(Decode[SweepCursor]), sampleSweepCursor()},
		{"cursor-compact.json", encoded(CompactCursor{Through: "2026-11-19"}), decoded(Decode[CompactCursor]), CompactCursor{Through: "2026-11-19"}},
		{"site-marker.json", encoded(sampleMarker()), decoded(Decode[SiteMarker]), sampleMarker()},
		{"condition-change.json", encoded(sampleConditionChange()), decoded(Decode[ConditionChange]), sampleConditionChange()},
		{"surge-level.json", encoded(sampleSurgeLevel()), decoded(Decode[SurgeLevel]), sampleSurgeLevel()},
		{"status-refusal.json", encoded(sampleRefusal()), decoded(Decode[RefusalStatus]), sampleRefusal()},
		{"status-refusal-changes.json", encoded(sampleRefusedChange()), decoded(Decode[RefusalStatus]), sampleRefusedChange()},
		{"adoption.json", encoded(sampleAdoption()), decoded(Decode[Adoption]), sampleAdoption()},
		{"gap.json", encoded(sampleGap()), decoded(Decode[Gap]), sampleGap()},
		{"cursor-delivery-marks.json", encoded(sampleDeliveryMarks()), decoded(Decode[DeliveryCursor]), sampleDeliveryMarks()},
		{"cursor-delivery.json", encoded(sampleDeliveryCursor()), decoded(Decode[DeliveryCursor]), sampleDeliveryCursor()},
		{"cursor-position.json", encoded(samplePositionCursor()), decoded(Decode[PositionCursor]), samplePositionCursor()},
		{"cursor-filled.json", encoded(sampleFilledCursor()), decoded(Decode[FilledCursor]), sampleFilledCursor()},
		{"cursor-refill.json", encoded(sampleRefillCursor()), decoded(Decode[RefillCursor]), sampleRefillCursor()},
		{"lease.json", encoded(sampleLease()), decoded(Decode[Lease]), sampleLease()},
		{"receipt-stored.txt", func() ([]byte, error) { return []byte(Receipt{Digest: sampleDigest("frame"), Bytes: 5}.Line()), nil },
			decodeReceipt, Receipt{Digest: sampleDigest("frame"), Bytes: 5}},
		{"receipt-refused.txt", func() ([]byte, error) { return []byte(Receipt{Refused: CauseObjectTooLarge}.Line()), nil },
			decodeReceipt, Receipt{Refused: CauseObjectTooLarge}},
		{"telemetry.binpb", func() ([]byte, error) { return sampleTelemetry(), nil }, decodeTelemetry, sampleDatagrams()},
		{"metadata-raw.json", encodeMetadata(rawNotice), decodeMetadata(rawNotice.Key), rawNotice},
		{"metadata-segment.json", encodeMetadata(segmentNotice), decodeMetadata(segmentNotice.Key), segmentNotice},
		{"manifest-part.jsonl.zst", nil, decodeManifestBytes, samplePart()},
		{"manifest-day.jsonl.zst", nil, decodeManifestBytes, sampleCompacted()},
	}...)
}

func decodeReceipt(data []byte) (any, error) { return ParseReceipt(string(data)) }

func decodeHeartbeatAnswer(data []byte) (any, error) { return ParseHeartbeatAnswer(string(data)) }

func decodeTelemetry(data []byte) (any, error) {
	var all []Datagram
	for d, err := range Datagrams(data) {
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

func encodeMetadata(n Notice) func() ([]byte, error) {
	return func() ([]byte, error) {
		metadata, err := ObjectMetadata(n)
		if err != nil {
			return nil, err
		}
		return json.Marshal(metadata)
	}
}

func decodeMetadata(key string) func([]byte) (any, error) {
	return func(data []byte) (any, error) {
		var metadata map[string]string
		if err := json.Unmarshal(data, &metadata); err != nil {
			return nil, err
		}
		return NoticeFromMetadata(key, metadata)
	}
}

func decodeManifestBytes(data []byte) (any, error) { return DecodeManifest(bytes.NewReader(data)) }

// comparing tells two records apart by what they say, not by how Go holds it.
var comparing = cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateComparable(Datagram{}.Source)}

func TestGolden(t *testing.T) {
	for _, g := range goldenRecords() {
		t.Run(g.file, func(t *testing.T) {
			path := filepath.Join(goldenFolder, g.file)
			if *golden {
				writeGolden(t, path, g)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := g.decode(data)
			if err != nil {
				t.Fatalf("a released record is refused: %v", err)
			}
			if diff := cmp.Diff(g.want, got, comparing); diff != "" {
				t.Errorf("a released record reads differently (-want +got):\n%s", diff)
			}
			if g.encode == nil {
				return
			}
			encoded, err := g.encode()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(data), string(encoded)); diff != "" {
				t.Errorf("the released format changed without a new version (-released +now):\n%s", diff)
			}
		})
	}
}

func writeGolden(t *testing.T, path string, g goldenRecord) {
	t.Helper()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return
	}
	encode := g.encode
	if own, ok := g.want.(interface{ Encode() ([]byte, error) }); encode == nil && ok {
		encode = own.Encode
	} else if encode == nil {
		encode = encoded(g.want)
	}
	data, err := encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestGoldenIsComplete fails for a golden file that no test reads any more.
func TestGoldenIsComplete(t *testing.T) {
	known := map[string]bool{"README.md": true}
	for _, g := range goldenRecords() {
		known[g.file] = true
	}
	files, err := os.ReadDir(goldenFolder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !known[f.Name()] {
			t.Errorf("%s/%s is read by no test", goldenFolder, f.Name())
		}
	}
}

// TestNewerFormat: what a newer Substorm wrote is refused as such, even where
// it is nothing that this program could parse.
func TestNewerFormat(t *testing.T) {
	for _, g := range goldenRecords() {
		data, err := os.ReadFile(filepath.Join(goldenFolder, g.file))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.HasSuffix(g.file, ".txt"):
			continue // a line of text without a version: unknown trailing pairs are its way to grow
		case strings.HasPrefix(g.file, "telemetry"):
			data[1] = Format + 1
		case strings.HasPrefix(g.file, "metadata"):
			data = []byte(`{"Substorm-Format":"2"}`)
		case strings.HasPrefix(g.file, "manifest"), strings.HasSuffix(g.file, ".zst"):
			data = compress(t, `{"format":2,"site":["a","b"]}`+"\n"+`[1,2,3]`+"\n")
		default:
			data = []byte(`{"format":2,"site":7,"instrument":[],"incarnations":[],"revision":"r","day":{},"stored":[],"code":1,"holder":2}`)
		}
		if got, err := g.decode(data); !errors.Is(err, ErrNewerFormat) {
			t.Errorf("%s of format 2: got %v, %v; want ErrNewerFormat", g.file, got, err)
		}
	}
}

// encoded is what writes a record.
func encoded(record any) func() ([]byte, error) {
	return func() ([]byte, error) { return Encode(record) }
}
