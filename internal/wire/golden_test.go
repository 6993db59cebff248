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
		{"notice-raw.json", rawNotice.Encode, decoded(DecodeNotice), rawNotice},
		{"notice-imported.json", importedNotice.Encode, decoded(DecodeNotice), importedNotice},
		{"notice-segment.json", segmentNotice.Encode, decoded(DecodeNotice), segmentNotice},
		{"notice-backfill.json", sampleNotice(sampleBackfill(), "mag-1").Encode, decoded(DecodeNotice), sampleNotice(sampleBackfill(), "mag-1")},
		{"notice-withdrawn.json", sampleNotice(sampleRepeat(), "allsky-1").Encode, decoded(DecodeNotice), sampleNotice(sampleRepeat(), "allsky-1")},
		{"notice-published.json", sampleNotice(samplePublished(), "allsky-1").Encode, decoded(DecodeNotice), sampleNotice(samplePublished(), "allsky-1")},
		{"registry-leaving.json", sampleLeaving().Encode, decoded(DecodeInstrumentEntry), sampleLeaving()},
		{"cursor-forward.json", sampleForwardCursor().Encode, decoded(DecodeForwardCursor), sampleForwardCursor()},
		{"cursor-forward-done.json", sampleForwardCursorDone().Encode, decoded(DecodeForwardCursor), sampleForwardCursorDone()},
		{"status-forward.json", sampleForwardStatus().Encode, decoded(DecodeForwardStatus), sampleForwardStatus()},
		{"ledger.json", sampleLedger().Encode, decoded(DecodeLedgerEntry), sampleLedger()},
		{"ledger-ended.json", sampleEndedLedger().Encode, decoded(DecodeLedgerEntry), sampleEndedLedger()},
		{"registry-instrument.json", sampleInstrument().Encode, decoded(DecodeInstrumentEntry), sampleInstrument()},
		{"registry-framings.json", sampleFramings().Encode, decoded(DecodeInstrumentEntry), sampleFramings()},
		{"registry-packs.json", samplePacks().Encode, decoded(DecodeInstrumentEntry), samplePacks()},
		{"registry-access.json", sampleAccess().Encode, decoded(DecodeInstrumentEntry), sampleAccess()},
		{"registry-rights.json", sampleRights().Encode, decoded(DecodeInstrumentEntry), sampleRights()},
		{"registry-keeping.json", sampleKept().Encode, decoded(DecodeInstrumentEntry), sampleKept()},
		{"notice-packed.json", sampleNotice(samplePacked(), "allsky-1").Encode, decoded(DecodeNotice), sampleNotice(samplePacked(), "allsky-1")},
		{"notice-repacked.json", sampleNotice(sampleRepacked(), "allsky-1").Encode, decoded(DecodeNotice), sampleNotice(sampleRepacked(), "allsky-1")},
		{"registry-http.json", sampleHTTP().Encode, decoded(DecodeInstrumentEntry), sampleHTTP()},
		{"upload-info.json", sampleUpload().Encode, decoded(DecodeUploadInfo), sampleUpload()},
		{"upload-done.json", sampleUploadDone().Encode, decoded(DecodeUploadDone), sampleUploadDone()},
		{"registry-observes.json", sampleObserving().Encode, decoded(DecodeInstrumentEntry), sampleObserving()},
		{"registry-observes-daily.json", sampleDaily().Encode, decoded(DecodeInstrumentEntry), sampleDaily()},
		{"ledger-day.jsonl.zst", nil, func(data []byte) (any, error) { return DecodeDayFile(bytes.NewReader(data)) }, sampleDayFile()},
		{"cursor-closing.json", sampleClosingCursor().Encode, decoded(DecodeClosingCursor), sampleClosingCursor()},
		{"status-ledger.json", sampleLedgerStatus().Encode, decoded(DecodeLedgerStatus), sampleLedgerStatus()},
		{"status-scrub.json", sampleScrubStatus().Encode, decoded(DecodeScrubStatus), sampleScrubStatus()},
		{"status-expiry.json", sampleExpiryStatus().Encode, decoded(DecodeExpiryStatus), sampleExpiryStatus()},
		{"missing.json", sampleDayGaps().Encode, decoded(DecodeDayGaps), sampleDayGaps()},
		{"downloads.json", sampleDownloads().Encode, decoded(DecodeDownloads), sampleDownloads()},
		{"description.json", sampleDescription().Encode, decoded(DecodeDescription), sampleDescription()},
		{"name.json", sampleName().Encode, decoded(DecodeNameClaim), sampleName()},
		{"notice-version.json", sampleNotice(sampleNamed(), "allsky-1").Encode, decoded(DecodeNotice), sampleNotice(sampleNamed(), "allsky-1")},
		{"registry-identity.json", sampleIdentity().Encode, decoded(DecodeInstrumentEntry), sampleIdentity()},
		{"registry-complete.json", RegistryComplete{Revision: 12, Count: 2}.Encode, decoded(DecodeRegistryComplete), RegistryComplete{Format: 1, Revision: 12, Count: 2}},
		{"notice-brought.json", sampleNotice(sampleBrought(), "allsky-1").Encode, decoded(DecodeNotice), sampleNotice(sampleBrought(), "allsky-1")},
		{"status-gateway-copies.json", sampleGatewayWithCopies().Encode, decoded(DecodeGatewayStatus), sampleGatewayWithCopies()},
		{"status-gateway-unwritten.json", sampleUnwrittenGateway().Encode, decoded(DecodeGatewayStatus), sampleUnwrittenGateway()},
		{"status-gateway.json", sampleGatewayStatus().Encode, decoded(DecodeGatewayStatus), sampleGatewayStatus()},
		{"status-instrument.json", sampleInstrumentStatus().Encode, decoded(DecodeInstrumentStatus), sampleInstrumentStatus()},
		{"status-sender.json", sampleSenderStatus().Encode, decoded(DecodeSenderStatus), sampleSenderStatus()},
		{"heartbeat.json", func() ([]byte, error) { f, err := sampleHeartbeat().Frame(); return f[PrefixSize:], err }, decoded(DecodeHeartbeat), sampleHeartbeat()},
		{"status-senders.json", sampleSenders().Encode, decoded(DecodeSenderStatus), sampleSenders()},
		{"heartbeat-sender.json", func() ([]byte, error) { f, err := sampleHeartbeatOfOne().Frame(); return f[PrefixSize:], err }, decoded(DecodeHeartbeat), sampleHeartbeatOfOne()},
		{"heartbeat-answer.txt", func() ([]byte, error) { return []byte(sampleHeartbeatAnswer().Line()), nil }, decodeHeartbeatAnswer, sampleHeartbeatAnswer()},
		{"status-instrument-achieved.json", sampleInstrumentAchieving().Encode, decoded(DecodeInstrumentStatus), sampleInstrumentAchieving()},
		{"heartbeat-sampling.json", nil, decoded(DecodeHeartbeat), sampleHeartbeatObeying()},
		{"heartbeat-sampling-state.json", func() ([]byte, error) { f, err := sampleHeartbeatObeying().Frame(); return f[PrefixSize:], err }, decoded(DecodeHeartbeat), sampleHeartbeatObeying()},
		{"status-sender-sampling.json", nil, decoded(DecodeSenderStatus), sampleSenderObeying()},
		{"status-sender-sampling-state.json", sampleSenderObeying().Encode, decoded(DecodeSenderStatus), sampleSenderObeying()},
		{"registry-channels.json", sampleDecoded().Encode, decoded(DecodeInstrumentEntry), sampleDecoded()},
		{"registry-sampling.json", nil, decoded(DecodeInstrumentEntry), sampleSampled()},
		{"registry-sampling-state.json", sampleSampled().Encode, decoded(DecodeInstrumentEntry), sampleSampled()},
		{"request-sampling.json", sampleRequest().Encode, decoded(DecodeSamplingRequest), sampleRequest()},
		{"command-sampling.txt", nil,
			func(data []byte) (any, error) { return ParseSampling(string(data)) }, sampleSampling()},
		{"command-sampling-state.txt", func() ([]byte, error) { l, err := sampleSampling().Line(); return []byte(l), err },
			func(data []byte) (any, error) { return ParseSampling(string(data)) }, sampleSampling()},
		{"cursor-segment.json", sampleCursor().Encode, decoded(DecodeSegmentCursor), sampleCursor()},
		{"cursor-segment-published.json", samplePublishedCursor().Encode, decoded(DecodeSegmentCursor), samplePublishedCursor()},
		{"notice-segment-deleted.json", sampleNotice(sampleDeletedSegment(), "mag-1").Encode, decoded(DecodeNotice), sampleNotice(sampleDeletedSegment(), "mag-1")},
		{"cursor-stream.json", sampleStreamCursor().Encode, decoded(DecodeStreamCursor), sampleStreamCursor()},
		{"cursor-sweep.json", sampleSweepCursor().Encode, decoded(DecodeSweepCursor), sampleSweepCursor()},
		{"cursor-compact.json", CompactCursor{Through: "2026-11-19"}.Encode, decoded(DecodeCompactCursor), CompactCursor{Format: 1, Through: "2026-11-19"}},
		{"site-marker.json", sampleMarker().Encode, decoded(DecodeSiteMarker), sampleMarker()},
		{"condition-change.json", sampleConditionChange().Encode, decoded(DecodeConditionChange), sampleConditionChange()},
		{"status-refusal.json", sampleRefusal().Encode, decoded(DecodeRefusalStatus), sampleRefusal()},
		{"status-refusal-changes.json", sampleRefusedChange().Encode, decoded(DecodeRefusalStatus), sampleRefusedChange()},
		{"adoption.json", sampleAdoption().Encode, decoded(DecodeAdoption), sampleAdoption()},
		{"gap.json", sampleGap().Encode, decoded(DecodeGap), sampleGap()},
		{"cursor-delivery-marks.json", sampleDeliveryMarks().Encode, decoded(DecodeDeliveryCursor), sampleDeliveryMarks()},
		{"cursor-delivery.json", sampleDeliveryCursor().Encode, decoded(DecodeDeliveryCursor), sampleDeliveryCursor()},
		{"cursor-filled.json", sampleFilledCursor().Encode, decoded(DecodeFilledCursor), sampleFilledCursor()},
		{"cursor-refill.json", sampleRefillCursor().Encode, decoded(DecodeRefillCursor), sampleRefillCursor()},
		{"lease.json", sampleLease().Encode, decoded(DecodeLease), sampleLease()},
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
	if encode == nil {
		encode = g.want.(encoder).Encode
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
