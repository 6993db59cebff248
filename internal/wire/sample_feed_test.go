// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

func sampleFeed() FeedEntry {
	return FeedEntry{
		UID: "6a0f0a3d-1f7c-4a3e-8a86-0c4d9a1b2c30", Generation: 2, Revision: 12,
		Feed: "aurora", Notices: "NOTICE_thule", Telemetry: "OBS_thule", Instruments: []string{"allsky-1", "mag-1"}, Channels: []string{"raw"}, Live: AccessAuthenticated,
	}
}

func sampleFeedWithBackfill() FeedEntry {
	f := sampleFeed()
	f.Backfill = true
	return f
}

func sampleConsumer() ConsumerEntry {
	return ConsumerEntry{
		UID: "2f6f8f0e-3c0b-4d0e-8d6b-6a2f5a1c9b20", Generation: 4, Revision: 12,
		Consumer: "model", Feed: "aurora", Instruments: []string{"mag-1"}, Channels: []string{"raw"}, NoNotices: true,
		Flow:     FlowEntry{Mode: FlowSample, IntervalMillis: 200, MaxBytesPerSecond: 25_000},
		Delivery: DeliveryWebSocket, MaxConnections: 10, Tokens: []TokenHash{HashToken([]byte("0123456789abcdef"), "a token that is long and random")},
	}
}

func sampleNATSConsumer() ConsumerEntry {
	return ConsumerEntry{
		UID: "2f6f8f0e-3c0b-4d0e-8d6b-6a2f5a1c9b20", Generation: 4, Revision: 12,
		Consumer: "model", Feed: "aurora", Instruments: []string{"mag-1"}, Flow: FlowEntry{Mode: FlowAll}, Delivery: DeliveryNATS,
		Durable: ConsumerDurable("model", "0a1b2c3d4e"),
	}
}

// sampleNotifiedConsumer is given WIS2 notifications.
func sampleNotifiedConsumer() ConsumerEntry {
	c := sampleNATSConsumer()
	c.NoTelemetry, c.WIS2 = true, true
	return c
}

func sampleReader() ReaderEntry {
	return ReaderEntry{Revision: 12, Reader: "university", Tokens: []TokenHash{HashToken([]byte("0123456789abcdef"), "another token")}}
}

// samplePuller is a reader that pulls.
func samplePuller() ReaderEntry {
	r := sampleReader()
	r.Pulls = &PullsEntry{Instruments: []string{"allsky-1", "mag-1"}, HoldMillis: 2_592_000_000}
	return r
}

func sampleClosed() ClosedEntry {
	return ClosedEntry{Revision: 12, Instrument: "mag-1", Access: AccessEntry{
		Live: AccessRestricted, Archive: AccessAuthenticated, EmbargoMillis: 3_600_000, Readers: []string{"consumer:model"}}}
}

// sampleUnsized is of a consumer of delivery NATS and mode All.
func sampleUnsized() ConsumerStatus {
	s := sampleConsumerStatus()
	s.LagBytes, s.Bytes = nil, nil
	return s
}

func sampleCertifiedReader() ReaderEntry {
	r := sampleReader()
	r.CertificateNames = []string{"reader.university.example"}
	return r
}

func sampleConsumerStatus() ConsumerStatus {
	return ConsumerStatus{
		Incarnation: "01k9zqv7r5", ReportedAt: sampleTime, State: StateOverrun, Connections: 1,
		LagMessages: 12, LagBytes: ptr(int64(34_000)), LagMillis: 5200, Messages: 4700, Bytes: ptr(uint64(940_000)),
		Dropped: map[string]uint64{"Sampled": 900, "Replaced": 7, string(GapRetention): 42}, Gaps: 1, LastGap: ptr(sampleTime.Add(-time.Minute)),
		Token: sampleFeedToken().String(), AchievedMillis: 203,
	}
}

func sampleFeedServerStatus() FeedServerStatus {
	return FeedServerStatus{
		Pod: "thule-feed-server-7d9c5-abcde", Incarnation: "01k9zqv7r5", StartedAt: sampleTime.Add(-time.Hour), ReportedAt: sampleTime,
		Revision: 12, Connections: 7, Draining: true, Problems: map[string]string{"model": `no such Feed as "aurora", which FeedConsumer "model" names`},
	}
}

func sampleNamedFeedServer() FeedServerStatus {
	s := sampleFeedServerStatus()
	s.FeedServer, s.EventStreams, s.BytesPerSecond = "thule", 3, 1_250_000
	return s
}

// sampleLoadedFeedServer tells of its load.
func sampleLoadedFeedServer() FeedServerStatus {
	s := sampleNamedFeedServer()
	s.Load = &Load{Fill: map[string]float64{BudgetCPU: 1, BudgetConnections: 0.75, BudgetEventStreams: 0.4, BudgetBacklog: 0.6},
		BytesPerSecond: 1_300_000, Answered: 420, Refused: 7, Limited: 31}
	return s
}

// sampleFeedServerThatGivesWay has too little for all.
func sampleFeedServerThatGivesWay() FeedServerStatus {
	s := sampleNamedFeedServer()
	s.GivingWay = &GivingWay{Cause: "CPU", Robots: 0, Bulk: 75}
	return s
}

func sampleTicket() Ticket {
	return Ticket{Feed: "aurora", Consumer: "model", Reader: "university", ExpiresAt: sampleTime.Add(LeaseTTL)}
}

func sampleFeedToken() FeedToken {
	epoch := StreamEpoch(sampleTime.Add(-24 * time.Hour))
	return FeedToken{Notices: ResumeToken{Epoch: epoch, Sequence: 4711}, Telemetry: ResumeToken{Epoch: epoch, Sequence: 98_765, Index: 2}}
}

// sampleFrame has one record of each kind.
func sampleFrame() Frame {
	notice, _ := Encode(sampleNotice(sampleRaw(), "allsky-1"))
	gap, _ := Encode(sampleGap())
	return Frame{Token: sampleFeedToken().String(), Records: []FrameRecord{
		{Kind: RecordNotice, Payload: notice}, {Kind: RecordTelemetry, Payload: sampleTelemetry(), Replaced: 300, Sampled: 4}, {Kind: RecordGap, Payload: gap},
	}}
}

func encodeFrame(f Frame) func() ([]byte, error) {
	return func() ([]byte, error) {
		b := AppendFrame(nil, f.Token)
		for _, r := range f.Records {
			b = append(AppendFrameRecord(b, r.Kind, len(r.Payload), r.Replaced, r.Sampled), r.Payload...)
		}
		return b, nil
	}
}

// encodeFeedMessage writes a message as feed servers do.
func encodeFeedMessage(r FrameRecord) func() ([]byte, error) {
	return func() ([]byte, error) {
		b := AppendFeedMessage(nil, sampleFeedToken().String(), r.Replaced, r.Sampled)
		return append(AppendFeedMember(b, r.Kind, r.Payload), '}'), nil
	}
}

func sampleFeedMessages() []FeedMessage {
	notice, gap := sampleNotice(sampleRaw(), "allsky-1"), sampleGap()
	telemetry := FeedTelemetry{Instrument: "mag-1", Channel: "raw"}
	for _, d := range sampleDatagrams() {
		telemetry.Datagrams = append(telemetry.Datagrams, FeedDatagram{ReceivedAt: d.ReceivedAt, Source: d.Source.String(), DestinationPort: d.DestinationPort, Payload: d.Payload})
	}
	token := sampleFeedToken().String()
	return []FeedMessage{
		{Token: token, Notice: &notice}, {Token: token, Replaced: 300, Sampled: 4, Telemetry: &telemetry},
		{Token: token, Gap: &gap},
	}
}

func goldenFeedRecords() []goldenRecord {
	frame, messages := sampleFrame(), sampleFeedMessages()
	return append(goldenMirrorRecords(), []goldenRecord{
		{"registry-closed.json", encoded(sampleClosed()), decoded(Decode[ClosedEntry]), sampleClosed()},
		{"registry-feed.json", encoded(sampleFeed()), decoded(Decode[FeedEntry]), sampleFeed()},
		{"registry-feed-backfill.json", encoded(sampleFeedWithBackfill()), decoded(Decode[FeedEntry]), sampleFeedWithBackfill()},
		{"registry-consumer-nats.json", encoded(sampleNATSConsumer()), decoded(Decode[ConsumerEntry]), sampleNATSConsumer()},
		{"registry-consumer-notified.json", encoded(sampleNotifiedConsumer()), decoded(Decode[ConsumerEntry]), sampleNotifiedConsumer()},
		{"registry-consumer.json", encoded(sampleConsumer()), decoded(Decode[ConsumerEntry]), sampleConsumer()},
		{"registry-reader-certificate.json", encoded(sampleCertifiedReader()), decoded(Decode[ReaderEntry]), sampleCertifiedReader()},
		{"registry-reader-pulls.json", encoded(samplePuller()), decoded(Decode[ReaderEntry]), samplePuller()},
		{"registry-reader.json", encoded(sampleReader()), decoded(Decode[ReaderEntry]), sampleReader()},
		{"status-consumer-unsized.json", encoded(sampleUnsized()), decoded(Decode[ConsumerStatus]), sampleUnsized()},
		{"status-consumer.json", encoded(sampleConsumerStatus()), decoded(Decode[ConsumerStatus]), sampleConsumerStatus()},
		{"status-feedserver-load.json", encoded(sampleLoadedFeedServer()), decoded(Decode[FeedServerStatus]), sampleLoadedFeedServer()},
		{"status-feedserver-named.json", encoded(sampleNamedFeedServer()), decoded(Decode[FeedServerStatus]), sampleNamedFeedServer()},
		{"status-feedserver.json", encoded(sampleFeedServerStatus()), decoded(Decode[FeedServerStatus]), sampleFeedServerStatus()},
		{"status-feedserver-gives-way.json", encoded(sampleFeedServerThatGivesWay()), decoded(Decode[FeedServerStatus]), sampleFeedServerThatGivesWay()},
		{"ticket.json", encoded(sampleTicket()), decoded(Decode[Ticket]), sampleTicket()},
		{"telemetry-frame.binpb", encodeFrame(frame), decoded(DecodeFrame), frame},
		{"feed-notice.json", encodeFeedMessage(frame.Records[0]), decoded(Decode[FeedMessage]), messages[0]},
		{"feed-telemetry.json", encodeFeedMessage(frame.Records[1]), decoded(Decode[FeedMessage]), messages[1]},
		{"feed-gap.json", encodeFeedMessage(frame.Records[2]), decoded(Decode[FeedMessage]), messages[2]},
		{"feed-place.json", func() ([]byte, error) {
			b := AppendFeedMessage(nil, sampleFeedToken().String(), 0, 0)
			return append(b[:len(b)-1], '}'), nil
		}, decoded(Decode[FeedMessage]), FeedMessage{Token: sampleFeedToken().String()}},
	}...)
}

// TestFrameReadsByItsSchema: a generated protobuf reader sees what we wrote.
func TestFrameReadsByItsSchema(t *testing.T) {
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{"."}}}
	files, err := compiler.Compile(t.Context(), "frame.proto")
	if err != nil {
		t.Fatal(err)
	}
	data, err := encodeFrame(sampleFrame())()
	if err != nil {
		t.Fatal(err)
	}
	m := dynamicpb.NewMessage(files[0].Messages().ByName("Frame"))
	if err := proto.Unmarshal(data, m); err != nil {
		t.Fatal(err)
	}
	get := func(m protoreflect.Message, name protoreflect.Name) protoreflect.Value {
		return m.Get(m.Descriptor().Fields().ByName(name))
	}
	records := get(m, "records").List()
	if get(m, "format").Uint() != Format || get(m, "token").String() != sampleFrame().Token || records.Len() != 3 || len(m.GetUnknown()) > 0 {
		t.Fatalf("frame reads as %v", m)
	}
	for i, want := range sampleFrame().Records {
		r := records.Get(i).Message()
		payload := get(r, protoreflect.Name(want.Kind.String()))
		if get(r, "replaced").Uint() != want.Replaced || get(r, "sampled").Uint() != want.Sampled || len(r.GetUnknown()) > 0 {
			t.Errorf("record %d reads as %v", i, r)
		}
		if want.Kind == RecordTelemetry {
			if n := get(payload.Message(), "datagrams").List().Len(); n != len(sampleDatagrams()) {
				t.Errorf("record %d holds %d datagrams", i, n)
			}
		} else if diff := cmp.Diff(string(want.Payload), string(payload.Bytes())); diff != "" {
			t.Error(diff)
		}
	}
}

// A payload that cannot be read is handed on as it is.
func TestUndecodable(t *testing.T) {
	for _, kind := range []RecordKind{RecordNotice, RecordTelemetry} {
		for _, payload := range []string{"", "\xff\xff", `"text"`, "{", "[]", "\n"} {
			b := append(AppendFeedMember(AppendFeedMessage(nil, "~", 0, 0), kind, []byte(payload)), '}')
			m, err := Decode[FeedMessage](b)
			if err != nil || m.Notice != nil || m.Telemetry != nil || string(m.Undecodable) != payload {
				t.Errorf("%s %q: %s, %v", kind, payload, b, err)
			}
		}
	}
}

func FuzzDecodeFrame(f *testing.F) {
	seed(f, "telemetry-frame.binpb")
	f.Fuzz(func(t *testing.T, data []byte) {
		frame, err := DecodeFrame(data)
		if err != nil {
			explained(t, err)
			return
		}
		again, err := encodeFrame(frame)()
		if err != nil {
			t.Fatal(err)
		}
		second, err := DecodeFrame(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(frame, second, comparing); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzFeedMember: whatever lies in a stream makes one line of JSON, which says the
// same.
func FuzzFeedMember(f *testing.F) {
	f.Add(uint8(RecordTelemetry), sampleTelemetry())
	f.Add(uint8(RecordNotice), []byte(`{"format": 1}`))
	f.Fuzz(func(t *testing.T, kind uint8, payload []byte) {
		k := RecordKind(kind)
		if k != RecordNotice && k != RecordTelemetry && k != RecordGap {
			return
		}
		b := append(AppendFeedMember(AppendFeedMessage(nil, "~", 0, 0), k, payload), '}')
		for _, c := range b {
			if c == '\n' || c == '\r' {
				t.Fatalf("%q has a line break", b)
			}
		}
		m, err := Decode[FeedMessage](b)
		if err != nil {
			if k == RecordTelemetry {
				t.Fatalf("%s: %v", b, err)
			}
			return // JSON of others may be anything
		}
		if m.Undecodable != nil && base64.StdEncoding.EncodeToString(m.Undecodable) != base64.StdEncoding.EncodeToString(payload) {
			t.Fatalf("%q is handed on as %q", payload, m.Undecodable)
		}
	})
}

func FuzzDecodeFeedEntry(f *testing.F) { fuzzRecord[FeedEntry](f, "registry-feed.json") }
func FuzzDecodeConsumerEntry(f *testing.F) {
	fuzzRecord[ConsumerEntry](f, "registry-consumer.json")
}
func FuzzDecodeClosedEntry(f *testing.F) { fuzzRecord[ClosedEntry](f, "registry-closed.json") }
func FuzzDecodeReaderEntry(f *testing.F) { fuzzRecord[ReaderEntry](f, "registry-reader.json") }
func FuzzDecodeTicket(f *testing.F)      { fuzzRecord[Ticket](f, "ticket.json") }
func FuzzDecodeConsumerStatus(f *testing.F) {
	fuzzRecord[ConsumerStatus](f, "status-consumer.json")
}
func FuzzDecodeFeedServerStatus(f *testing.F) {
	fuzzRecord[FeedServerStatus](f, "status-feedserver.json")
}
