// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestSegmentKey(t *testing.T) {
	want := SegmentRange{Channel: "raw", Epoch: "19f", First: 41, Last: 97}
	key := SegmentKey("thule", "mag-1", "raw", "2026-11-21", "19f", 41, 97)
	if got, ok := ParseSegmentKey(key); !ok || got != want {
		t.Errorf("%s reads as %+v, %t", key, got, ok)
	}
	for _, other := range []string{"", key + "x", "x" + key, strings.Replace(key, "41", "041", 1), strings.Replace(key, "/s/", "/r/", 1), strings.Replace(key, "-97", "", 1)} {
		if got, ok := ParseSegmentKey(other); ok {
			t.Errorf("%q reads as %+v", other, got)
		}
	}
}

func TestKeys(t *testing.T) {
	day := DayOf(sampleTime)
	digest := sampleDigest("frame")
	early := time.Unix(1, 0)
	for _, c := range []struct{ got, want string }{
		{SiteMarkerKey("thule"), "site/thule.json"},
		{RawKey("thule", "allsky-1", sampleTime, digest), "o/thule/allsky-1/r/2026/11/21/1795305598987-" + digest.String()[:16]},
		{RawKey("thule", "allsky-1", early, digest), "o/thule/allsky-1/r/1970/01/01/0000000001000-" + digest.String()[:16]},
		{RawPrefix("thule", "allsky-1", day), "o/thule/allsky-1/r/2026/11/21/"},
		{InstrumentPrefix("thule", "allsky-1"), "o/thule/allsky-1/"},
		{SegmentKey("thule", "mag-1", "raw", day, "19f", 41, 97), "o/thule/mag-1/s/raw/2026/11/21/19f-41-97.pcapng"},
		{SegmentPrefix("thule", "mag-1", "raw", day), "o/thule/mag-1/s/raw/2026/11/21/"},
		{StagingKey("thule", "allsky-1", "x"), "staging/thule/allsky-1/x"},
		{ManifestPartKey("thule", "allsky-1", day, 7), "manifest/thule/allsky-1/2026-11-21/p-7.jsonl.zst"},
		{ManifestVersionKey("thule", "allsky-1", day, 2), "manifest/thule/allsky-1/2026-11-21/v-2.jsonl.zst"},
		{ManifestPrefix("thule", "allsky-1", day), "manifest/thule/allsky-1/2026-11-21/"},
		{LedgerKey("allsky-1", day, StepReceived, "gateway-0"), "allsky-1.2026-11-21.received.gateway-0"},
		{LedgerKey(UnknownInstrument, day, StepStored, ArchivistWriter), "_unknown.2026-11-21.stored._archivist"},
		{RegistryInstrumentKey("allsky-1"), "instrument.allsky-1"},
		{GatewayStatusKey("gateway-0"), "gateway.gateway-0"},
		{InstrumentStatusKey("allsky-1", "gateway-0"), "instrument.allsky-1.gateway-0"},
		{SegmentCursorKey("mag-1", "raw"), "segment.mag-1.raw"},
		{StreamEpoch(time.UnixMilli(0x19f)), "19f"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}

func TestDayIsUTC(t *testing.T) {
	east := time.FixedZone("east", 9*3600)
	instant := time.Date(2026, 11, 22, 8, 59, 59, 0, east)
	if got := DayOf(instant); got != "2026-11-21" {
		t.Errorf("%v lies in day %s, want 2026-11-21", instant, got)
	}
	start, err := DayOf(instant).Start()
	if err != nil || !start.Equal(time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("the day starts at %v (%v)", start, err)
	}
	if FormatTime(instant) != "2026-11-21T23:59:59Z" {
		t.Errorf("time as %s", FormatTime(instant))
	}
	for _, bad := range []string{"", "2026-13-01", "2026-02-29", "2026-1-1", "20261121", "2026-11-21T00:00:00Z", "../../etc"} {
		if _, err := ParseDay(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("day %q: got %v, want ErrMalformed", bad, err)
		}
	}
}

// TestKeysSortByTime: a listing of a day's raw objects is in order of receipt.
func TestKeysSortByTime(t *testing.T) {
	a := RawKey("s", "i", time.UnixMilli(999_999_999_999), sampleDigest("a"))
	b := RawKey("s", "i", time.UnixMilli(1_000_000_000_000), sampleDigest("b"))
	if a[strings.LastIndex(a, "/")+1:] >= b[strings.LastIndex(b, "/")+1:] {
		t.Errorf("%s sorts after the later %s", a, b)
	}
}

func TestParseManifestKey(t *testing.T) {
	for key, want := range map[string]ManifestFile{
		ManifestPartKey("thule", "allsky-1", "2026-11-21", 7):    {"thule", "allsky-1", "2026-11-21", false, 7},
		ManifestVersionKey("thule", "allsky-1", "2026-11-21", 2): {"thule", "allsky-1", "2026-11-21", true, 2},
	} {
		if got, err := ParseManifestKey(key); err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", key, got, err, want)
		}
	}
	for _, bad := range []string{
		"", "manifest/thule/allsky-1/2026-11-21/p-0.jsonl.zst", "manifest/thule/allsky-1/2026-11-21/p-07.jsonl.zst",
		"manifest/thule/allsky-1/2026-11-21/p--1.jsonl.zst", "manifest/thule/allsky-1/2026-13-21/p-1.jsonl.zst",
		"manifest/thule/allsky-1/2026-11-21/x-1.jsonl.zst", "manifest/thule/allsky-1/2026-11-21/p-1.jsonl",
		"manifest/thule/allsky-1/2026-11-21/p-9999999999.jsonl.zst", "manifest/thule/2026-11-21/p-1.jsonl.zst",
		"manifest/Thule/allsky-1/2026-11-21/p-1.jsonl.zst", "manifest/thule/allsky-1/2026-11-21/p-1.jsonl.zst\n",
		"x/manifest/thule/allsky-1/2026-11-21/p-1.jsonl.zst",
	} {
		if got, err := ParseManifestKey(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: got %+v, %v; want ErrMalformed", bad, got, err)
		}
	}
}

func TestParseOtherKeys(t *testing.T) {
	site, instrument, err := InstrumentOfKey(sampleSegment().Key)
	if site != "thule" || instrument != "mag-1" || err != nil {
		t.Errorf("got %s, %s, %v", site, instrument, err)
	}
	for _, bad := range []string{"", "o", "o/s/i", "o/s/i/", "o//i/r", "o/s//r", "packs/s/i/r", "/o/s/i/r"} {
		if _, _, err := InstrumentOfKey(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("key %q: got %v, want ErrMalformed", bad, err)
		}
	}
	instrument, day, step, writer, err := ParseLedgerKey(LedgerKey("allsky-1", "2026-11-21", StepDuplicates, ArchivistWriter))
	if instrument != "allsky-1" || day != "2026-11-21" || step != StepDuplicates || writer != ArchivistWriter || err != nil {
		t.Errorf("got %s, %s, %s, %s, %v", instrument, day, step, writer, err)
	}
	for _, bad := range []string{"", "a.2026-11-21.received", "a.2026-11-21.received.g.x", ".2026-11-21.received.g", "a.today.received.g", "a.2026-11-21..g", "a.2026-11-21.received."} {
		if _, _, _, _, err := ParseLedgerKey(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("ledger key %q: got %v, want ErrMalformed", bad, err)
		}
	}
	if i, ok := ParseRegistryInstrumentKey(RegistryInstrumentKey("allsky-1")); i != "allsky-1" || !ok {
		t.Errorf("got %s, %v", i, ok)
	}
	for _, bad := range []string{"", RegistryCompleteKey, "instrument", "instrument."} {
		if i, ok := ParseRegistryInstrumentKey(bad); ok {
			t.Errorf("registry key %q names %q", bad, i)
		}
	}
	if i, g, ok := ParseStatusKey(GatewayStatusKey("gateway-0")); i != "" || g != "gateway-0" || !ok {
		t.Errorf("got %s, %s, %v", i, g, ok)
	}
	if i, g, ok := ParseStatusKey(InstrumentStatusKey("allsky-1", "gateway-0")); i != "allsky-1" || g != "gateway-0" || !ok {
		t.Errorf("got %s, %s, %v", i, g, ok)
	}
	for _, bad := range []string{"", "gateway", "gateway.", "gateway.a.b", "instrument.a", "instrument..a", "instrument.a.", "x.y"} {
		if i, g, ok := ParseStatusKey(bad); ok {
			t.Errorf("status key %q names %q, %q", bad, i, g)
		}
	}
}

// TestKeysSuitJetStream: keys of KV entries and names of streams are valid ones. The pattern is the one of nats.go's KeyValue.
func TestKeysSuitJetStream(t *testing.T) {
	kv := regexp.MustCompile(`^[-/_=.a-zA-Z0-9]+$`)
	for _, key := range []string{
		LedgerKey(UnknownInstrument, "2026-11-21", StepReceived, ArchivistWriter), RegistryInstrumentKey("allsky-1"), RegistryCompleteKey,
		GatewayStatusKey("gateway-0"), InstrumentStatusKey("allsky-1", "gateway-0"), SegmentCursorKey("mag-1", "raw"), ArchivistLease, NameKey("allsky-1", "2026/å frame.jpg"),
	} {
		if !kv.MatchString(key) || strings.HasPrefix(key, ".") || strings.HasSuffix(key, ".") {
			t.Errorf("%q is no KV key", key)
		}
	}
	for _, name := range []string{
		ObservationStream("a-1"), NoticeStream("a-1"), RegistryBucket("a-1"), LedgerBucket("a-1"), LeaseBucket("a-1"), StatusBucket("a-1"), CursorBucket("a-1"), NamesBucket("a-1"), IndexBucket("a-1"),
	} {
		if !regexp.MustCompile(`^[A-Z]+_a-1$`).MatchString(name) {
			t.Errorf("%q is no name of a stream or bucket", name)
		}
	}
}

func TestSubjects(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{ObservationSubject("thule", "mag-1", "raw"), "obs.thule.mag-1.raw"},
		{ObservationSubjects("thule"), "obs.thule.>"},
		{NoticeSubject("thule", "mag-1"), "notice.thule.mag-1"},
		{NoticeSubjects("thule"), "notice.thule.>"},
		{RequestSubject("thule", "mag-1"), "request.thule.mag-1"},
		{RequestSubjects("thule"), "request.thule.>"},
		{DecisionSubject("thule", "mag-1", "01k9zqv7r4"), "decision.thule.mag-1.01k9zqv7r4"},
		{DecisionSubjects("thule"), "decision.thule.>"},
		{HealthSubject("thule", "instrument", "mag-1"), "health.thule.instrument.mag-1"},
		{HealthSubjects("thule"), "health.thule.>"},
		{EventSource("thule", "gateway-0"), "/substorm/thule/gateway-0"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
	site, instrument, channel, err := ParseObservationSubject("obs.thule.mag-1.raw")
	if site != "thule" || instrument != "mag-1" || channel != "raw" || err != nil {
		t.Errorf("got %s, %s, %s, %v", site, instrument, channel, err)
	}
	for _, bad := range []string{"", "obs.thule.mag-1", "obs.thule.mag-1.raw.x", "notice.thule.mag-1.raw", "obs..mag-1.raw", "obs.thule..raw", "obs.thule.mag-1."} {
		if _, _, _, err := ParseObservationSubject(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("subject %q: got %v, want ErrMalformed", bad, err)
		}
	}
}

func TestDayOfKey(t *testing.T) {
	at := time.Date(2026, 11, 21, 23, 59, 59, 999, time.UTC)
	for key, want := range map[string]Day{
		RawKey("thule", "allsky-1", at, sampleDigest("a")):               "2026-11-21",
		SegmentKey("thule", "mag-1", "raw", "2026-11-21", "19f", 41, 97): "2026-11-21",
		"o/thule/allsky-1/n/2026/11/21/night.fits":                       "",
		StagingKey("thule", "allsky-1", "r/2026/11/21/x"):                "",
		ManifestPartKey("thule", "allsky-1", "2026-11-21", 1):            "",
		RawPrefix("thule", "allsky-1", "2026-11-21"):                     "",
		"o/thule/allsky-1/r/2026/11/x/1795305598987-0123456789abcdef":    "",
	} {
		if day, ok := DayOfKey(key); day != want || ok != (want != "") {
			t.Errorf("%s: day %q, %v, want %q", key, day, ok, want)
		}
	}
}

func TestMessageID(t *testing.T) {
	n := sampleNotice(sampleRaw(), "allsky-1")
	if n.MessageID() != n.Key {
		t.Errorf("the id of a notice of an object is %q, want its key %q", n.MessageID(), n.Key)
	}
	first := n.MessageID()
	n.State = StateDuplicate
	if n.MessageID() == first {
		t.Error("the notice that marks an object as a duplicate would be dropped as a duplicate of the one that announced it")
	}
	seen := map[string]bool{first: true}
	for _, r := range []Record{sampleRetracted(), sampleRestored(), samplePurged()} {
		if id := sampleNotice(r, "allsky-1").MessageID(); seen[id] {
			t.Errorf("the notice %s would be dropped as a duplicate", id)
		} else {
			seen[id] = true
		}
	}
	again := sampleRetracted()
	again.RetractedAt = ptr(sampleTime.Add(4 * time.Hour))
	if id := sampleNotice(again, "allsky-1").MessageID(); seen[id] {
		t.Errorf("a second retraction would be dropped as a duplicate of the first: %s", id)
	}
}

func TestReceivedAtOfKey(t *testing.T) {
	at := time.Date(2026, 11, 21, 23, 59, 59, 999_999_999, time.UTC)
	raw := RawKey("thule", "allsky-1", at, Digest{1, 2, 3})
	if got, ok := ReceivedAtOfKey(raw); !ok || !got.Equal(at.Truncate(time.Millisecond)) {
		t.Errorf("of %s: %v, %v", raw, got, ok)
	}
	for _, key := range []string{
		"", raw + "0", strings.Replace(raw, "/r/", "/n/", 1), strings.ToUpper(raw),
		SegmentKey("thule", "mag-1", "raw", "2026-11-21", "epoch", 1, 2),
	} {
		if got, ok := ReceivedAtOfKey(key); ok {
			t.Errorf("of %q: %v, want nothing", key, got)
		}
	}
}

func TestNamedKeys(t *testing.T) {
	for want, got := range map[string]string{
		"o/thule/allsky-1/n/2015/a b.fits":   NamedKey("thule", "allsky-1", "2015/a b.fits", 1),
		"o/thule/allsky-1/v/2/2015/a b.fits": NamedKey("thule", "allsky-1", "2015/a b.fits", 2),
	} {
		if got != want || CheckKey(got) != nil || !IsOurs(got) {
			t.Errorf("got %q, want %q", got, want)
		}
		if site, instrument, err := InstrumentOfKey(got); site != "thule" || instrument != "allsky-1" || err != nil {
			t.Errorf("%s is of %s of %s, %v", got, instrument, site, err)
		}
	}
	for _, good := range []string{"a", "ø/æ.fits", "a#1/?b=c", "..a", strings.Repeat("a", 255)} {
		if err := CheckName(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "/a", "a/", "a//b", ".", "a/../b", "a\nb", " a", "a ", "a\xff", `a\b`, "a\x7f", strings.Repeat("a", 256), strings.Repeat("a/", 600) + "a"} {
		if err := CheckName(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("name %q: %v, want ErrMalformed", bad, err)
		}
	}
	for _, foreign := range []string{"", "o", "old/o/x", "tree/2015/a", "/o/x", "manifests/x"} {
		if IsOurs(foreign) {
			t.Errorf("key %q passes for one of ours", foreign)
		}
	}
}

func TestKeyOfID(t *testing.T) {
	for id, want := range map[string]string{
		"packs/thule/2026/11/21/x.tar#1536": "packs/thule/2026/11/21/x.tar",
		"packs/thule/2026/11/21/x.tar":      "", "o/thule/allsky-1/n/a#1": "", "tree/a#1": "",
	} {
		key, packed := KeyOfID(id)
		if packed != (want != "") || (packed && key != want) || (!packed && key != id) {
			t.Errorf("%s: %s, %v", id, key, packed)
		}
	}
}

func TestPackKeys(t *testing.T) {
	at := time.Date(2026, 3, 4, 23, 59, 59, 999_000_000, time.UTC)
	key := PackKey("thule", at, "north-gw-0", "01k9zqv7r3", 12)
	if want := "packs/thule/2026/03/04/1772668799999-north-gw-0-01k9zqv7r3-12.tar"; key != want {
		t.Fatalf("key %q, want %q", key, want)
	}
	got, err := ParsePackKey(key)
	want := PackFile{Site: "thule", Day: "2026-03-04", First: at, Writer: "north-gw-0", Incarnation: "01k9zqv7r3", Number: 12}
	if err != nil || got != want || got.Compacted() {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if c, err := ParsePackKey(PackKey("thule", at, ArchivistWriter, "9dff50df08c63581", 1)); err != nil || !c.Compacted() {
		t.Errorf("%+v, %v is not compacted", c, err)
	}
	for _, bad := range []string{"", "packs/thule/2026/03/04/x.tar", key + "x", "o/" + key, strings.Replace(key, "-12.", "-0.", 1), strings.Replace(key, "/03/", "/13/", 1)} {
		if _, err := ParsePackKey(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for id, day := range map[string]Day{
		MemberID(key, 1536):                           "2026-03-04",
		RawKey("thule", "allsky-1", at, Digest{}):     "2026-03-04",
		NamedKey("thule", "allsky-1", "frame.png", 1): "",
		"packs/thule/2026/03/04/none#12":              "",
	} {
		if got, ok := DayOfID(id); got != day || ok != (day != "") {
			t.Errorf("%s is of %q, %v, want %q", id, got, ok, day)
		}
	}
}

func TestMalformedMembers(t *testing.T) {
	r := samplePacked()
	name := MemberName(sampleNotice(r, "allsky-1"))
	good, err := MemberPax(sampleNotice(r, "allsky-1"))
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		key, name string
		pax       map[string]string
		want      error
	}{
		"no format":    {r.Key, name, map[string]string{PaxRecord: good[PaxRecord]}, ErrMalformed},
		"newer":        {r.Key, name, map[string]string{PaxFormat: "2", PaxRecord: good[PaxRecord]}, ErrNewerFormat},
		"no record":    {r.Key, name, map[string]string{PaxFormat: "1"}, ErrMalformed},
		"null":         {r.Key, name, map[string]string{PaxFormat: "1", PaxRecord: "null"}, ErrMalformed},
		"empty":        {r.Key, name, map[string]string{PaxFormat: "1", PaxRecord: "{}"}, ErrMalformed},
		"foreign name": {r.Key, "etc/passwd", good, ErrMalformed},
		"other site":   {r.Key, strings.Replace(name, "thule", "tromso", 1), good, ErrMalformed},
		"other day":    {strings.Replace(r.Key, "/21/", "/22/", 1), name, good, ErrMalformed},
	} {
		if n, err := NoticeOfMember(c.key, c.name, r.Offset, r.Length, c.pax); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v, want %v", what, n, err, c.want)
		}
	}
}

func TestUploadKeys(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	for key, want := range map[string]UploadFile{
		UploadInfoKey("hub", "camera", id):               {Offset: -1},
		UploadDoneKey("hub", "camera", id):               {Offset: -1, Done: true},
		UploadLengthKey("hub", "camera", id):             {Offset: -1, Length: true},
		UploadPieceKey("hub", "camera", id, 0):           {},
		UploadPieceKey("hub", "camera", id, 123_456_789): {Offset: 123_456_789},
	} {
		want.Prefix, want.Instrument, want.ID = UploadPrefix("hub", "camera", id), "camera", id
		if got, ok := ParseUploadKey(key); !ok || got != want || !strings.HasPrefix(key, StagingPrefix("hub")) {
			t.Errorf("%s: got %+v, %v", key, got, ok)
		}
	}
	for _, bad := range []string{"", StagingKey("hub", "camera", "x"), UploadPrefix("hub", "camera", id), UploadPrefix("hub", "camera", id) + "12", UploadInfoKey("hub", "camera", "../x")} {
		if got, ok := ParseUploadKey(bad); ok {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
	if !IsUploadID(id) || IsUploadID("") || IsUploadID(id+"0") || IsUploadID("../../../../../../../../../../../../x") {
		t.Error("ids of uploads")
	}
}
