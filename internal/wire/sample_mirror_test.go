// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"testing"
	"time"
)

// samplePush is over rsync, scheduled, with all that a push may have.
func samplePush() MirrorEntry {
	return MirrorEntry{
		UID: "0b8e6f0e-6c3a-4a57-9c86-5f7f6f5e4d30", Generation: 3, Revision: 12, Partner: "uni", Direction: MirrorPush, Suspended: true,
		Rsync:    &MirrorRsync{Daemon: &MirrorRsyncDaemon{Address: "rsync.example.org:873", Module: "aurora", Path: "from/the/north", User: "substorm"}},
		Schedule: &MirrorSchedule{Cron: "15 2 * * *", TimeZone: "Europe/Oslo", StartingDeadlineMillis: 3_600_000, Concurrency: MirrorForbid},
		Selection: MirrorSelection{Instruments: []string{"allsky-1", "mag-1"}, ObservedFrom: sampleTime.AddDate(-1, 0, 0), ObservedTo: sampleTime,
			Versions: MirrorVersionsAll, Embargoed: true},
		Template: "{year}/{month}/{day}/{instrument}-{id}",
		Limits: MirrorLimits{BytesPerSecond: 10 << 20, Connections: 8, TimeZone: "Europe/Oslo",
			Rates:       []MirrorRate{{MirrorWindow: MirrorWindow{Days: []string{"Monday", "Friday"}, From: "08:00", To: "18:00"}, BytesPerSecond: 1 << 20}},
			Maintenance: []MirrorWindow{{Days: []string{"Sunday"}, From: "22:00", To: "02:00"}}},
		Verify: MirrorVerifySize, VerifyPercent: 10, Prune: MirrorPruneWhenExpired, Retractions: MirrorTombstone, SafetyStopPercent: 10, HoldMillis: 2_592_000_000,
	}
}

func samplePushOverSSH() MirrorEntry {
	e := samplePush()
	e.Rsync = &MirrorRsync{SSH: &MirrorRsyncSSH{Host: "mirror.example.org", Port: 22, User: "substorm", Path: "/srv/aurora"}}
	e.Selection = MirrorSelection{Instruments: []string{AllInstruments}, ObservedWithinMillis: 86_400_000, Versions: MirrorVersionsCurrent}
	return e
}

func samplePushIntoBucket() MirrorEntry {
	e := samplePush()
	e.Rsync, e.Schedule, e.Continuous = nil, nil, &MirrorContinuous{IntervalMillis: 3_600_000}
	e.S3 = &MirrorS3{Endpoint: "https://s3.example.org", Bucket: "aurora", Prefix: "north", Region: "eu-north-1", TLS: &MirrorTLS{CA: true}}
	return e
}

// samplePull is from another Substorm.
func samplePull() MirrorEntry {
	return MirrorEntry{
		UID: "0b8e6f0e-6c3a-4a57-9c86-5f7f6f5e4d31", Generation: 1, Revision: 12, Partner: "arctic", Direction: MirrorPull,
		HTTPS: &MirrorHTTPS{URL: "https://archive.example.org", Source: MirrorSourceSubstorm, Origin: "arctic", Token: true,
			TLS: &MirrorTLS{CA: true, Certificate: true}},
		Continuous: &MirrorContinuous{IntervalMillis: 600_000},
		Selection:  MirrorSelection{Instruments: []string{AllInstruments}, Versions: MirrorVersionsCurrent},
		Limits:     MirrorLimits{Connections: 8, TimeZone: "Etc/UTC"},
		Verify:     MirrorVerifyDigest, VerifyPercent: 100, Prune: MirrorPruneNever, Retractions: MirrorDelete, SafetyStopPercent: 10,
	}
}

func samplePullOfWebArchive() MirrorEntry {
	e := samplePull()
	e.HTTPS = &MirrorHTTPS{URL: "http://old.example.org/data", Source: MirrorSourceWebArchive}
	e.Selection.Instruments, e.Paths = nil, []MirrorPath{{Pattern: "kev/**/*.jpg", Instrument: "allsky-1"}, {Pattern: "**", Instrument: "mag-1"}}
	return e
}

func sampleMirrorStatus() MirrorStatus {
	return MirrorStatus{
		Run: "uni-mirror-29384000", Pod: "uni-mirror-29384000-abcde", Generation: 3, Trigger: MirrorScheduled,
		StartedAt: sampleTime.Add(-time.Hour), ReportedAt: sampleTime, Result: MirrorRunning, Reason: MirrorReasonMaintenance, Message: "waits until 02:00",
		Reached: sampleTime.Add(-time.Second),
		Progress: MirrorProgress{Objects: 37_000, Bytes: 52_000_000, TotalObjects: 37_655, TotalBytes: 53_000_000, Compared: 100, BytesPerSecond: 1_000_000,
			Removed: 4, Failed: 1, Quarantined: 2, BadNames: 5, Ends: sampleTime.Add(time.Second)},
		Owed:       &MirrorOwed{Objects: 655, Bytes: 1_000_000, Oldest: sampleTime.Add(-24 * time.Hour)},
		Path:       &MirrorPathSeen{RoundTripMicros: 110_000, DeliveryBytesPerSecond: 5_000_000, BufferBytes: 550_000, Connections: 8, RetransmitPermille: 3},
		VerifiedTo: sampleTime.Add(-48 * time.Hour), Purges: 1,
		WentBack:    &MirrorWentBack{Objects: 5, Days: 2, Unlisted: 3, Retracted: 4, Instrument: "allsky-1", Path: "r1/camera0.txt", Since: sampleTime.Add(-time.Hour)},
		Unawaited:   &MirrorUnawaited{Reader: "hub", Refused: "403 Forbidden", Old: true},
		OriginClock: "the clock of the other Site shows 2027-11-21T17:04:05Z",
	}
}

// sampleMirrorEnded is of a run that a person began, and that did not reach the other side.
func sampleMirrorEnded() MirrorStatus {
	return MirrorStatus{
		Run: "uni-run-x7k2p", Generation: 3, Trigger: MirrorManual, VerifyOnly: true, Part: true, StartedAt: sampleTime.Add(-time.Minute), ReportedAt: sampleTime,
		EndedAt: sampleTime, Result: MirrorFailed, Reason: MirrorReasonUnreachable, Message: "connection refused",
		Unreached: &MirrorProblem{Reason: MirrorReasonUnreachable, Message: "connection refused", Since: sampleTime.Add(-time.Minute)},
	}
}

// sampleGuest is an instrument of another Site, with all that it may have there.
func sampleGuest() GuestEntry {
	return GuestEntry{
		Origin: "arctic", Instrument: "allsky-1", Partner: "arctic", SaidAt: sampleTime,
		Access: sampleAccess().Access, Rights: sampleRights().Rights, About: sampleDecoded().About, Station: "kev", MediaType: "image/jpeg",
	}
}

func sampleMover() MoverEntry {
	return MoverEntry{Partner: "arctic", Kind: MirrorScheduled, Certificate: sampleDigest("certificate")}
}

// sampleMirrored is what a run says of a guest's object.
func sampleMirrored() MirroredObject {
	from := sampleTime.Add(-2 * time.Minute)
	return MirroredObject{
		Origin: &Origin{Site: "arctic", ID: PackKey("arctic", sampleTime, "gateway-0", "01k9zqv7r3", 7) + "#1536"}, Path: "2026/11/21/kev ☃ 😀.jpg",
		Size: 5, Digest: sampleDigest("frame"), MediaType: "image/jpeg", Version: 2, ObservedFrom: &from, ObservedTo: ptr(from.Add(time.Minute)),
		ReceivedAt: sampleTime, TimeSource: TimeSourceName, Completeness: CompletenessVerified,
	}
}

// sampleMirroredRecord is what becomes of it.
func sampleMirroredRecord() Record {
	m := sampleMirrored()
	id := m.Origin.ObjectID("thule", GuestName("arctic", "allsky-1"), m.ReceivedAt, m.Digest)
	return Record{
		ID: id, Key: id, Path: m.Path, Size: m.Size, Digest: m.Digest, MediaType: m.MediaType, State: StateCurrent, Version: m.Version,
		ObservedFrom: m.ObservedFrom, ObservedTo: m.ObservedTo, ReceivedAt: m.ReceivedAt, TimeSource: m.TimeSource, Backfill: true,
		Completeness: m.Completeness, Source: "10.1.2.9:40001", Port: 8444, Gateway: "gateway-0", Incarnation: "01k9zqv7r4", Origin: m.Origin,
	}
}

func sampleMirroringGateway() GatewayStatus {
	s := sampleGatewayWithCopies()
	s.Mirror = &MirrorListener{Address: "10.1.2.4:8444", Certificate: sampleDigest("certificate")}
	return s
}

func samplePullerStatus() PullerStatus {
	return PullerStatus{ReportedAt: sampleTime, VerifiedTo: sampleTime.Add(-time.Minute), ComparedAt: sampleTime.AddDate(0, 0, -3),
		Owed: MirrorOwed{Objects: 2, Bytes: 4096, Oldest: sampleTime.Add(-time.Hour)}}
}

func goldenMirrorRecords() []goldenRecord {
	guest := GuestName("arctic", "allsky-1")
	mirrored := sampleNotice(sampleMirroredRecord(), guest)
	supersede := ArchiveRequest{Site: "thule", Instrument: guest, Run: "01k9zqv7r3", Action: ActionSupersede, ID: mirrored.ID, ReceivedAt: sampleTime, By: "mirror arctic"}
	return []goldenRecord{
		{"registry-guest.json", encoded(sampleGuest()), decoded(Decode[GuestEntry]), sampleGuest()},
		{"registry-mover.json", encoded(sampleMover()), decoded(Decode[MoverEntry]), sampleMover()},
		{"mirrored-object.json", func() ([]byte, error) { header, err := sampleMirrored().Header(); return []byte(header), err },
			func(data []byte) (any, error) { return ParseMirroredObject(string(data)) }, sampleMirrored()},
		{"notice-mirrored.json", encoded(mirrored), decoded(Decode[Notice]), mirrored},
		{"metadata-mirrored.json", encodeMetadata(mirrored), decodeMetadata(mirrored.Key), mirrored},
		{"status-gateway-mirror.json", encoded(sampleMirroringGateway()), decoded(Decode[GatewayStatus]), sampleMirroringGateway()},
		{"request-supersede.json", encoded(supersede), decoded(Decode[ArchiveRequest]), supersede},
		{"registry-mirror-rsync.json", encoded(samplePush()), decoded(Decode[MirrorEntry]), samplePush()},
		{"registry-mirror-ssh.json", encoded(samplePushOverSSH()), decoded(Decode[MirrorEntry]), samplePushOverSSH()},
		{"registry-mirror-bucket.json", encoded(samplePushIntoBucket()), decoded(Decode[MirrorEntry]), samplePushIntoBucket()},
		{"registry-mirror-substorm.json", encoded(samplePull()), decoded(Decode[MirrorEntry]), samplePull()},
		{"registry-mirror-webarchive.json", encoded(samplePullOfWebArchive()), decoded(Decode[MirrorEntry]), samplePullOfWebArchive()},
		{"cursor-mirror-confirmed.json", encoded(MirrorConfirmed{At: sampleTime}), decoded(Decode[MirrorConfirmed]), MirrorConfirmed{At: sampleTime}},
		{"status-mirror.json", encoded(sampleMirrorStatus()), decoded(Decode[MirrorStatus]), sampleMirrorStatus()},
		{"status-puller.json", encoded(samplePullerStatus()), decoded(Decode[PullerStatus]), samplePullerStatus()},
		{"status-mirror-ended.json", encoded(sampleMirrorEnded()), decoded(Decode[MirrorStatus]), sampleMirrorEnded()},
	}
}

// TestMirrorThatIsNone: an entry that no run could follow is refused whole.
func TestMirrorThatIsNone(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*MirrorEntry){
		"no partner":               func(e *MirrorEntry) { e.Partner = "" },
		"no direction":             func(e *MirrorEntry) { e.Direction = "Sideways" },
		"no protocol":              func(e *MirrorEntry) { e.Rsync = nil },
		"two protocols":            func(e *MirrorEntry) { e.S3 = &MirrorS3{} },
		"neither side of rsync":    func(e *MirrorEntry) { e.Rsync = &MirrorRsync{} },
		"never":                    func(e *MirrorEntry) { e.Schedule = nil },
		"scheduled and continuous": func(e *MirrorEntry) { e.Continuous = &MirrorContinuous{} },
	} {
		e := samplePush()
		spoil(&e)
		data, err := Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode[MirrorEntry](data); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMirrorStatusKey(t *testing.T) {
	t.Parallel()
	if partner, run, ok := ParseMirrorStatusKey(MirrorStatusKey("uni", "uni-mirror-1")); !ok || partner != "uni" || run != "uni-mirror-1" {
		t.Errorf("read as %q, %q, %t", partner, run, ok)
	}
	for _, key := range []string{"", "mirror", "mirror.uni", "mirror..run", "mirror.uni.", "mirror.a.b.c", "consumer.a.b"} {
		if _, _, ok := ParseMirrorStatusKey(key); ok {
			t.Errorf("%q is taken for a report", key)
		}
	}
}
