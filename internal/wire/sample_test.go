// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"crypto/sha256"
	"net/netip"
	"time"
)

// One of each record, with every field set: what the golden files hold.

var sampleTime = time.Date(2026, 11, 21, 23, 59, 58, 987654321, time.UTC)

func sampleDigest(s string) Digest { return Digest(sha256.Sum256([]byte(s))) }

func ptr[T any](v T) *T { return &v }

func sampleRaw() Record {
	digest := sampleDigest("frame")
	key := RawKey("thule", "allsky-1", sampleTime, digest)
	return Record{
		ID: key, Key: key, Name: "frame ☃ 😀.pgm", Size: 5, Digest: digest, MediaType: "image/x-portable-graymap",
		State: StateCurrent, ObservedFrom: ptr(sampleTime.Add(-2 * time.Minute)), ObservedTo: ptr(sampleTime.Add(-time.Minute)),
		ReceivedAt: sampleTime, TimeSource: TimeSourceReceived, Completeness: CompletenessUnverified,
		Source: "[2001:db8::7]:40001", Gateway: "gateway-0", Incarnation: "01k9zqv7r3",
	}
}

func sampleDuplicate() Record {
	r := sampleRaw()
	r.ReceivedAt = r.ReceivedAt.Add(time.Second)
	r.Key = RawKey("thule", "allsky-1", r.ReceivedAt, r.Digest)
	r.ID, r.State, r.DuplicateOf = r.Key, StateDuplicate, sampleRaw().Key
	return r
}

func sampleMember() Record {
	r := sampleRaw()
	r.Key, r.Offset, r.Length = "packs/thule/2026/11/21/01k9.tar", 1536, 5
	r.ID = r.Key + "#1536"
	return r
}

func sampleImported() Record {
	from := time.Date(2015, 3, 17, 6, 30, 0, 0, time.UTC)
	key := "old/allsky/2015/03/17/rank_0630.fits"
	return Record{
		ID: key, Key: key, Name: key, Size: 5, Digest: sampleDigest("frame"), DigestSource: DigestSourceListed, MediaType: "application/fits",
		State: StateCurrent, ObservedFrom: &from, ObservedTo: ptr(from.Add(time.Minute - 1)),
		ReceivedAt: from.Add(97 * time.Second), TimeSource: TimeSourceName, Completeness: CompletenessUnverified,
		Gateway: ImportWriter, Incarnation: "b3f1c2d4e5a60718",
	}
}

// samplePublished is a record with what came after the first release.
func samplePublished() Record {
	r := sampleRaw()
	r.Path = "2026/11/21/rank_235958~2.pgm"
	r.Port, r.Framing = 30101, FramingLines
	return r
}

func sampleLeaving() InstrumentEntry {
	e := sampleInstrument()
	e.Station, e.Naming = "rank", "{year}/{month}/{day}/{station}_{hour}{minute}{second}-{digest:8}.pgm"
	e.Aliases = []string{"rank/{year2}{doy}/{hour}{minute}{second}.pgm", "old/{name}"}
	e.Forward = &ForwardEntry{Address: "old.example.org:5000", Protocol: ProtocolTCP, Until: sampleTime.Add(time.Hour)}
	return e
}

func sampleForwardCursor() ForwardCursor {
	return ForwardCursor{Protocol: ProtocolTCP, Epoch: StreamEpoch(sampleTime), Next: 4711,
		Sent: ForwardTotals{100, 5000}, Dropped: ForwardTotals{2, 20}, Seen: ForwardTotals{110, 5500}, SeenNext: 4799}
}

func sampleForwardCursorDone() ForwardCursor {
	c := sampleForwardCursor()
	c.Done = []uint64{4712, 4715}
	return c
}

func sampleForwardStatus() ForwardStatus {
	return ForwardStatus{ReportedAt: sampleTime, Gateway: "gateway-1", Address: "old.example.org:5000",
		Sent: ForwardTotals{100, 5000}, Dropped: ForwardTotals{2, 20}, Backlog: ForwardTotals{8, 480}, Oldest: ptr(sampleTime.Add(-time.Minute)),
		LastError: "dial tcp 192.0.2.9:5000: connect: connection refused"}
}

func sampleSegment() Record {
	key := SegmentKey("thule", "mag-1", "raw", DayOf(sampleTime), StreamEpoch(sampleTime), 41, 97)
	return Record{
		ID: key, Key: key, Size: 4096, Digest: sampleDigest("segment"), MediaType: MediaTypeSegment, State: StateCurrent,
		ReceivedAt: sampleTime, TimeSource: TimeSourceReceived, Completeness: CompletenessVerified,
		Gateway: "gateway-1", Incarnation: "01k9zqv7r4",
		Segment: &SegmentRange{Channel: "raw", Epoch: StreamEpoch(sampleTime), First: 41, Last: 97, Messages: 57, Datagrams: 600, DatagramBytes: 21_000},
	}
}

// sampleBackfill is a segment of what was observed half a day before it came.
func sampleBackfill() Record {
	r := sampleSegment()
	r.ObservedFrom, r.ObservedTo = ptr(sampleTime.Add(-13*time.Hour)), ptr(sampleTime.Add(-12*time.Hour))
	r.TimeSource, r.Backfill = TimeSourcePayload, true
	return r
}

func sampleNotice(r Record, instrument string) Notice {
	return Notice{Site: "thule", Instrument: instrument, Record: r}
}

func samplePart() Manifest {
	return Manifest{
		Header: ManifestHeader{Format: Format, Site: "thule", Instrument: "allsky-1", Day: "2026-11-21", Entries: 2, Duplicates: 1,
			ObservedFrom: sampleRaw().ObservedFrom, ObservedTo: sampleRaw().ObservedTo, Writer: "gateway-1", Incarnation: "01k9zqv7r4"},
		Records: []Record{sampleRaw(), sampleDuplicate(), sampleMember()},
	}
}

func sampleCompacted() Manifest {
	m := samplePart()
	m.Header.Replaces = []string{ManifestPartKey("thule", "allsky-1", "2026-11-21", 1), ManifestPartKey("thule", "allsky-1", "2026-11-21", 2)}
	return m
}

func sampleTotals() Totals {
	return Totals{
		Objects: 3, ObjectBytes: 15, Digest: sampleDigest("sum"), Datagrams: 600, DatagramBytes: 21_000, Acknowledged: 2,
		Unfinished: map[Cause]uint64{CauseReset: 1, CauseStalled: 2}, UnfinishedBytes: 7,
		Dropped: map[Cause]uint64{CauseKernelBuffer: 4}, Unknown: 5,
	}
}

func sampleLedger() LedgerEntry {
	return LedgerEntry{Incarnations: map[string]Totals{"01k9zqv7r3": sampleTotals(), "01k9zqv7r4": {Objects: 1}}}
}

// sampleEndedLedger has an incarnation that resolved what one before it received, and one whose counters were lost.
func sampleEndedLedger() LedgerEntry {
	return LedgerEntry{Incarnations: map[string]Totals{
		"01k9zqv7r3": {Objects: 1, ObjectBytes: 5, Incomplete: true},
		"01k9zqv7r4": {Unfinished: map[Cause]uint64{CauseCorrupt: 1}, UnfinishedBytes: 5, Resolved: 1, ResolvedBytes: 5},
	}}
}

func sampleInstrument() InstrumentEntry {
	return InstrumentEntry{
		UID: "0b7e4a5c-0d0e-4a63-9c1e-6a3f3c4f5a10", Generation: 3, Revision: 12, Instrument: "allsky-1", Gateway: "gateway",
		Retired: true,
		Listeners: []ListenerEntry{
			{Protocol: ProtocolTCP, Port: 30101, Sources: []string{"192.0.2.7/32", "2001:db8::/64"}, Framing: FramingUntilClose,
				Receipt: ReceiptLine, IdleTimeoutMillis: 60_000, MaxAgeMillis: 3_600_000},
			{Protocol: ProtocolUDP, Port: 30102, Channel: "raw"},
		},
		MaxObjectSize: 1 << 30, MaxConnections: 1024, Acknowledge: "StoredOrSpooled", MediaType: "image/jpeg",
		CadenceMillis: 60_000, RepeatWindowMillis: 2_592_000_000, SegmentAgeMillis: 600_000, SegmentSize: 64 << 20,
	}
}

// sampleFramings has the listeners that came with the framings of raw TCP.
func sampleFramings() InstrumentEntry {
	e := sampleInstrument()
	e.Retired = false
	listener := ListenerEntry{Protocol: ProtocolTCP, Receipt: ReceiptLine, IdleTimeoutMillis: 60_000, MaxAgeMillis: 3_600_000}
	lines, prefixed, idle := listener, listener, listener
	lines.Port, lines.Framing = 30101, FramingLines
	prefixed.Port, prefixed.Framing, prefixed.Expect = 30102, FramingLengthPrefixed, &ExpectEntry{MinSize: 1024, Magic: "ffd8ff", Trailer: "ffd9"}
	idle.Port, idle.Framing, idle.IdleAfterMillis, idle.Receipt = 30103, FramingIdle, 500, ReceiptClose
	e.Listeners = []ListenerEntry{lines, prefixed, idle}
	return e
}

// samplePacks is packed.
func samplePacks() InstrumentEntry {
	e := sampleInstrument()
	e.PackBelow = 64 << 10
	return e
}

// sampleAccess says who may read.
func sampleAccess() InstrumentEntry {
	e := sampleInstrument()
	e.Access = &AccessEntry{Live: AccessPublic, Archive: AccessRestricted, EmbargoMillis: 2_592_000_000, Readers: []string{"ops", "viewer"}}
	return e
}

// sampleRights says whose the data is.
func sampleRights() InstrumentEntry {
	e := sampleInstrument()
	e.Rights = &RightsEntry{License: "CC-BY-4.0", DOI: "10.5555/thule.allsky", Citation: "Thule Observatory (2026): all-sky images.", Credit: "Image: Thule Observatory"}
	return e
}

func sampleKept() InstrumentEntry {
	e := sampleInstrument()
	e.Retention = &RetentionEntry{MaxAgeMillis: 10 * 365 * 24 * 3600 * 1000, MaxSize: 5 << 40, HoldMillis: 30 * 24 * 3600 * 1000}
	e.LegalHold = true
	return e
}

// samplePacked is a member as gateways write it, sampleRepacked one that had
// another place before.
func samplePacked() Record {
	r := sampleRaw()
	r.Name = ""
	r.Key, r.Offset, r.Length = PackKey("thule", r.ReceivedAt, "gateway-0", r.Incarnation, 7), 1536, 5
	r.ID = MemberID(r.Key, r.Offset)
	return r
}

func sampleRepacked() Record {
	r := samplePacked()
	r.Key, r.Offset = PackKey("thule", r.ReceivedAt, ArchivistWriter, "9dff50df08c63581", 1), 1024
	return r
}

// sampleHTTP has the listener that came with HTTP.
func sampleHTTP() InstrumentEntry {
	e := sampleInstrument()
	e.Retired, e.Versions = false, VersionsKeep
	e.Listeners = []ListenerEntry{{Protocol: ProtocolHTTP, Port: 30104, Sources: []string{"192.0.2.0/24"},
		IdleTimeoutMillis: 60_000, MaxAgeMillis: 3_600_000, UploadExpiryMillis: 604_800_000}}
	return e
}

func sampleUpload() UploadInfo {
	return UploadInfo{Length: 70_000_000, Name: "2026/frame 7.jpg", MediaType: "image/jpeg", Digest: ptr(sampleDigest("frame")),
		Metadata: "filename MjAyNi9mcmFtZSA3LmpwZw==", CreatedAt: sampleTime, ExpiryMillis: 604_800_000}
}

// sampleConditional has the condition of the request that created it.
func sampleConditional() UploadInfo {
	u := sampleUpload()
	u.NoneMatch = "*"
	return u
}

func sampleUploadDone() UploadDone {
	return UploadDone{ID: NamedKey("thule", "allsky-1", "2026/frame 7.jpg", 1), Digest: sampleDigest("frame")}
}

// sampleName has a name that has two versions.
func sampleName() NameClaim {
	const name = "2026/frame 7.jpg"
	version := func(n int, content string) NameVersion {
		return NameVersion{Version: n, Digest: sampleDigest(content), Size: int64(len(content)), Key: NamedKey("thule", "allsky-1", name, n),
			ReceivedAt: sampleTime.Add(time.Duration(n) * time.Minute), Gateway: "gateway-1", Incarnation: "01k9zqv7r4", Announced: n == 1}
	}
	return NameClaim{Name: name, Versions: []NameVersion{version(1, "frame"), version(2, "corrected")}}
}

// sampleFolder is the folder of the name that has two versions.
func sampleFolder() NameClaim { return NameClaim{Name: "2026", Folder: true} }

// sampleNamed is the second object of a name.
func sampleNamed() Record {
	c := sampleName()
	v, _ := c.Latest()
	return Record{
		ID: v.Key, Key: v.Key, Name: c.Name, Size: v.Size, Digest: v.Digest, MediaType: "image/jpeg", State: StateCurrent,
		Version: v.Version, Supersedes: c.Versions[0].Key, ReceivedAt: v.ReceivedAt, TimeSource: TimeSourceReceived,
		Completeness: CompletenessVerified, Source: "192.0.2.7:40001", Gateway: v.Gateway, Incarnation: v.Incarnation,
	}
}

// sampleListeners has listeners with names.
func sampleListeners() InstrumentEntry {
	e := sampleInstrument()
	e.Retired, e.Listeners[0].Name, e.Listeners[1].Name = false, "frames", "telemetry"
	return e
}

// sampleIdentity has what says who may send, and how much.
func sampleIdentity() InstrumentEntry {
	e := sampleFramings()
	e.Listeners = e.Listeners[:2]
	e.Listeners[0].TLS, e.Listeners[0].Tokens = TLSServer, []TokenHash{HashToken([]byte("0123456789abcdef"), "a token that is long and random")}
	e.Listeners[1].TLS, e.Listeners[1].CertificateNames = TLSMutual, []string{"camera.example", "spiffe://field/camera"}
	e.BytesPerSecond, e.ObjectsPerSecond = 25_000, 5
	return e
}

func sampleUnwrittenGateway() GatewayStatus {
	s := sampleGatewayStatus()
	s.Stopped, s.Unwritten, s.Volume = true, true, "6f1ed002ab5595d8"
	return s
}

func sampleGatewayStatus() GatewayStatus {
	return GatewayStatus{
		Gateway: "gateway-0", Pool: "gateway", Incarnation: "01k9zqv7r3", Node: "node-1", Address: "10.1.2.3",
		StartedAt: sampleTime.Add(-time.Hour), ReportedAt: sampleTime, Revision: 12, Datapath: "Kernel",
		Problems: map[string]string{"allsky-1": "listen on port 30101: address in use"}, Draining: true,
		Spool: &SpoolStatus{Objects: 12, Bytes: 3_400_000, Oldest: ptr(sampleTime.Add(-20 * time.Minute)), Size: 10_000_000_000, Quarantined: 1},
	}
}

// sampleLoadedGateway tells of its load.
func sampleLoadedGateway() GatewayStatus {
	s := sampleGatewayStatus()
	s.Load = &Load{Fill: map[string]float64{BudgetCPU: 0.5, BudgetMemory: 0.125, BudgetReceiveQueue: 0, BudgetSpool: 0.031, BudgetConnections: 0.2},
		BytesPerSecond: 12_000_000, PacketsPerSecond: 9000}
	return s
}

func sampleGatewayWithCopies() GatewayStatus {
	return GatewayStatus{
		Gateway: "gateway-1", Pool: "gateway", Incarnation: "01k9zqv7r4", Node: "node-2", Address: "10.1.2.4",
		StartedAt: sampleTime.Add(-time.Hour), ReportedAt: sampleTime, Revision: 12, Datapath: "Kernel", Stopped: true,
		Spool: &SpoolStatus{Size: 10_000_000_000}, Replica: "10.1.2.4:8443", Peer: "gateway-0",
		Copies: []CopiesStatus{{Owner: "gateway-0", Objects: 5, Bytes: 1_000_000, Oldest: ptr(sampleTime.Add(-20 * time.Minute))}},
	}
}

func sampleBrought() Record {
	r := sampleRaw()
	r.BroughtBy = "gateway-1"
	return r
}

func sampleInstrumentStatus() InstrumentStatus {
	return InstrumentStatus{ReportedAt: sampleTime, LastReceived: sampleTime.Add(-time.Second),
		Day: "2026-11-21", Objects: 3, Datagrams: 600, Bytes: 21_015}
}

// sampleInstrumentListeners says when something came to which listener.
func sampleInstrumentListeners() InstrumentStatus {
	s := sampleInstrumentStatus()
	s.Listeners = map[string]time.Time{"frames": sampleTime.Add(-time.Minute), "telemetry": s.LastReceived}
	return s
}

func sampleCursor() SegmentCursor {
	return SegmentCursor{
		Epoch: StreamEpoch(sampleTime), Next: 98, Planned: sampleSegment().Segment, PlannedDay: "2026-11-21",
		Stored: map[Day]Totals{"2026-11-20": {Datagrams: 10, DatagramBytes: 100}, "2026-11-21": {Datagrams: 600, DatagramBytes: 21_000}},
	}
}

func samplePublishedCursor() SegmentCursor {
	return SegmentCursor{Epoch: StreamEpoch(sampleTime), Next: 98,
		Published: map[string]Published{"pool-0/01k9zqv7r3": {Floor: 17, Above: []uint64{3, 1, 12}, At: sampleTime}}}
}

func sampleDeletedSegment() Record {
	r := sampleSegment()
	s := *r.Segment
	s.Deleted = 12
	r.Segment = &s
	return r
}

func sampleStreamCursor() StreamCursor {
	return StreamCursor{Epoch: StreamEpoch(sampleTime), Next: 4711}
}

func sampleSweepCursor() SweepCursor {
	return SweepCursor{Whole: sampleTime.Add(-time.Hour), Recent: sampleTime}
}

func sampleMarker() SiteMarker {
	return SiteMarker{Code: "thule", UID: "b5a0ee57-5f66-4a3e-b64f-0f3f0e1b7a01", Namespace: "substorm", Name: "thule-hub",
		Cluster: "6c4f2c6e-98cb-4bd5-a9f3-4f0d5c7ad002"}
}

func sampleSurgeLevel() SurgeLevel {
	return SurgeLevel{Site: "thule", Level: "storm", Was: "active", Since: ptr(sampleTime.Truncate(time.Second)), Why: "Kp 7.3 (kp, 12 min old) ≥ 5",
		Values: []SpaceWeatherValue{
			{Quantity: "Kp", Value: 7.33, Source: "kp", ValidTo: time.Date(2026, 11, 21, 21, 0, 0, 0, time.UTC), StaleAfterMillis: 14_400_000},
			{Quantity: "Bz", Value: -14.2, Source: "wind", Spacecraft: "SOLAR1", ValidTo: time.Date(2026, 11, 21, 23, 58, 0, 0, time.UTC), StaleAfterMillis: 900_000},
		},
		Floors: []SurgeFloor{{Kind: "FeedServer", Replicas: 4, Level: "storm"}, {Kind: "IngestGateway", Name: "north", Replicas: 2, Level: "storm"}}}
}

func sampleConditionChange() ConditionChange {
	return ConditionChange{Kind: "Instrument", Namespace: "substorm", Name: "allsky-1",
		UID: "0b7e4a5c-0d0e-4a63-9c1e-6a3f3c4f5a10", Generation: 3, Condition: "DataFlowing", Status: "False", Was: "True",
		Reason: "Overdue", Message: "nothing was received since 2026-11-21T23:57:57Z", At: sampleTime}
}

func sampleGap() Gap {
	epoch := StreamEpoch(sampleTime.Add(-24 * time.Hour))
	return Gap{Consumer: "model", Stream: "NOTICE_thule", From: ResumeToken{Epoch: epoch, Sequence: 4711}.String(),
		To: ResumeToken{Epoch: epoch, Sequence: 4752}.String(), Count: 42, Reason: GapRetention, At: sampleTime}
}

func sampleDeliveryCursor() DeliveryCursor {
	gap := sampleGap()
	epoch := StreamEpoch(sampleTime.Add(-24 * time.Hour))
	return DeliveryCursor{UID: "2f6f8f0e-3c0b-4d0e-8d6b-6a2f5a1c9b20", Places: map[string]DeliveryPlace{
		"NOTICE_thule": {Epoch: epoch, Created: sampleTime.Add(-time.Hour), Next: 4753, Last: 5000, Waiting: 12}},
		Gaps: 1, Missing: map[GapReason]uint64{GapRetention: 84}, LastGap: ptr(sampleTime),
		Told: &gap, Sequence: 4990, Untold: []Gap{gap}}
}

func sampleDeliveryMarks() DeliveryCursor {
	c := sampleDeliveryCursor()
	c.Marks = map[string]map[string]uint64{"NOTICE_thule": {"thule": 4760, "north": 4753}}
	return c
}

func sampleFilledCursor() FilledCursor {
	at := ResumeToken{Epoch: StreamEpoch(sampleTime.Add(-24 * time.Hour)), Sequence: 4711}
	return FilledCursor{Places: map[string]FilledPlace{"display": {UID: "2f6f8f0e-3c0b-4d0e-8d6b-6a2f5a1c9b20",
		Epoch: StreamEpoch(sampleTime), Token: FeedToken{Notices: at, Telemetry: at}.String()}}}
}

func samplePositionCursor() PositionCursor {
	at := ResumeToken{Epoch: StreamEpoch(sampleTime.Add(-24 * time.Hour)), Sequence: 4711}
	return PositionCursor{UID: "2f6f8f0e-3c0b-4d0e-8d6b-6a2f5a1c9b20", Streams: map[string]string{"OBS_thule": at.String()}}
}

func sampleRefillCursor() RefillCursor {
	return RefillCursor{Epoch: StreamEpoch(sampleTime), Since: sampleTime.Add(-72 * time.Hour),
		Through: sampleTime.Add(-time.Hour), ThroughID: sampleRaw().ID, Sequence: 4711, Announced: 4000}
}

func sampleLease() Lease {
	return Lease{Holder: "gateway-1", Incarnation: "01k9zqv7r4", Since: sampleTime}
}

func sampleDatagrams() []Datagram {
	return []Datagram{
		{ReceivedAt: sampleTime, Source: netip.MustParseAddrPort("192.0.2.7:40001"), DestinationPort: 30102, Payload: []byte("48123.4 -12.9\n")},
		{ReceivedAt: sampleTime.Add(time.Nanosecond), Source: netip.MustParseAddrPort("[2001:db8::7]:65535"), DestinationPort: 1, Payload: []byte{}},
		{ReceivedAt: sampleTime.Add(time.Microsecond), Source: netip.MustParseAddrPort("192.0.2.8:1"), DestinationPort: 65535, Payload: bytes.Repeat([]byte{0xff, 0}, 150)},
	}
}

func sampleTelemetry() []byte {
	b := AppendTelemetryHeader(nil, "mag-1", "raw")
	for _, d := range sampleDatagrams() {
		b = AppendDatagram(b, d)
	}
	return b
}

func sampleHeartbeat() Heartbeat {
	return Heartbeat{
		Type: ControlHeartbeat, SentAt: sampleTime, ClockOffset: ptr(Span(-1500 * time.Millisecond)), RoundTrip: ptr(Span(620 * time.Millisecond)),
		QueueObjects: 12, QueueBytes: 345_678, Oldest: ptr(sampleTime.Add(-time.Hour)), Sent: 9876, SetAside: 1, Version: "v0.3.0",
	}
}

func sampleHeartbeatOfOne() Heartbeat {
	h := sampleHeartbeat()
	h.Sender = "3f9a0c55e1d2b764"
	return h
}

func sampleHeartbeatAnswer() HeartbeatAnswer {
	return HeartbeatAnswer{Received: sampleTime, Answered: sampleTime.Add(20 * time.Millisecond)}
}

func sampleSenderStatus() SenderStatus {
	return sampleHeartbeat().StatusAt(sampleTime, "gateway-0")
}

func sampleSenders() SenderStatus {
	one := sampleHeartbeatOfOne().StatusAt(sampleTime, "gateway-0")
	other := SenderStatus{Gateway: "gateway-0", Sender: "192.0.2.7", ReportedAt: sampleTime.Add(-time.Minute), QueueObjects: 3, QueueBytes: 4096, Version: "v0.2.0"}
	s := MergeSenders([]SenderStatus{one, other})
	s.Senders = []SenderStatus{other, one}
	return s
}

func sampleRefusal() RefusalStatus {
	return RefusalStatus{Incarnation: "01k9zqv7r3", ReportedAt: sampleTime, Refused: map[Cause]Refused{
		CauseBadCertificate: {Count: 3, Source: "192.0.2.9", Protocol: ProtocolTCP, Port: 30101, Shown: "a certificate for other.example", At: sampleTime.Add(-time.Minute)},
	}}
}

func sampleRefusedChange() RefusalStatus {
	return RefusalStatus{Incarnation: "01k9zqv7r3", ReportedAt: sampleTime, Changes: map[string]RefusedChange{
		"LegalHold": {Count: 2, ID: samplePublished().ID, Asked: "Purged", By: "anna@laptop", Why: "the Instrument is under legal hold", At: sampleTime.Add(-time.Minute)},
	}}
}

func sampleAdoption() Adoption {
	first := sampleTime.Add(-time.Minute)
	return Adoption{ID: "9dff50df08c63581", Instrument: "allsky-1", DecidedAt: sampleTime, Items: []Adopted{
		{From: QuarantineKey("thule", "gateway-0", sampleTime, sampleDigest("frame")), Quarantined: Quarantined{Protocol: ProtocolTCP,
			Source: "192.0.2.9:40001", Port: 30101, ReceivedAt: sampleTime, Size: 5, Digest: sampleDigest("frame"), Looks: "image/jpeg"}},
		{From: QuarantineKey("thule", "gateway-1", sampleTime, sampleDigest("segment")), Quarantined: Quarantined{Protocol: ProtocolUDP,
			Source: "192.0.2.9", Port: 30102, ReceivedAt: sampleTime, FirstAt: &first, Datagrams: 7, Size: 700, Digest: sampleDigest("segment"), Looks: MediaTypeSegment}},
	}}
}
