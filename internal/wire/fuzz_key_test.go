// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// FuzzParseQuarantineKey: what is accepted keeps its gateway and its millisecond.
func FuzzParseQuarantineKey(f *testing.F) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 5e6, time.UTC)
	f.Add(QuarantineKey("thule", "north-0", at, Digest{1}))
	f.Add(AdoptionKey("thule", "one"))
	f.Add("quarantine/thule/north-0/1763726400000-")
	f.Add("quarantine/thule/north-0/-763726400000-00112233aabbccdd")
	f.Fuzz(func(t *testing.T, key string) {
		gateway, receivedAt, ok := ParseQuarantineKey(key)
		if !ok {
			return
		}
		parts := strings.Split(key, "/")
		millis, digest, _ := strings.Cut(parts[3], "-")
		if gateway == "" || gateway != parts[2] || fmt.Sprintf("%013d", receivedAt.UnixMilli()) != millis || len(digest) != 16 {
			t.Fatalf("%q reads as %q, %v", key, gateway, receivedAt)
		}
		if _, err := hex.DecodeString(digest); err != nil {
			t.Fatalf("%q has digest %q", key, digest)
		}
		if strings.HasPrefix(key, AdoptionPrefix(parts[1])) {
			t.Fatalf("the adoption %q reads as of gateway %q", key, gateway)
		}
	})
}

// FuzzParseUploadKey: what is accepted is exactly what its maker makes.
func FuzzParseUploadKey(f *testing.F) {
	id := strings.Repeat("0f", 16)
	f.Add(UploadInfoKey("thule", "camera", id))
	f.Add(UploadDoneKey("thule", "camera", id))
	f.Add(UploadLengthKey("thule", "camera", id))
	f.Add(UploadPieceKey("thule", "camera", id, 16<<20))
	f.Add(UploadPieceKey("thule", "camera", id, 9999999999999999))
	f.Add(StagingKey("thule", "camera", "tus/"+id))
	f.Fuzz(func(t *testing.T, key string) {
		u, ok := ParseUploadKey(key)
		if !ok {
			return
		}
		site := strings.Split(key, "/")[1]
		made := UploadInfoKey(site, u.Instrument, u.ID)
		switch {
		case u.Done:
			made = UploadDoneKey(site, u.Instrument, u.ID)
		case u.Length:
			made = UploadLengthKey(site, u.Instrument, u.ID)
		case u.Offset >= 0:
			made = UploadPieceKey(site, u.Instrument, u.ID, u.Offset)
		}
		if made != key || u.Prefix != UploadPrefix(site, u.Instrument, u.ID) || !IsUploadID(u.ID) {
			t.Fatalf("%q reads as %+v, which is %q", key, u, made)
		}
	})
}

// FuzzParsePackKey: what is accepted is exactly what its maker makes; the writer
// and the incarnation of an unknown one may be parted elsewhere.
func FuzzParsePackKey(f *testing.F) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 5e6, time.UTC)
	f.Add(PackKey("thule", at, "north-0", "01k9zqv7r3", 7))
	f.Add(PackKey("thule", at, ArchivistWriter, "0a1b", 1))
	f.Add(PackKey("thule", time.Unix(0, 0), "a", "b", 1<<63-1))
	f.Add("packs/thule/2026/13/21/1763726400000-north-0-x-1.tar")
	f.Add("packs/thule/2026/11/21/1763726400000-north-0-x-01.tar")
	f.Fuzz(func(t *testing.T, key string) {
		p, err := ParsePackKey(key)
		if err != nil {
			explained(t, err)
			return
		}
		if made := PackKey(p.Site, p.First, p.Writer, p.Incarnation, p.Number); made != key || p.Day != DayOf(p.First) {
			t.Fatalf("%q reads as %+v, which is %q", key, p, made)
		}
		if day, ok := DayOfID(MemberID(key, 512)); !ok || day != p.Day {
			t.Fatalf("a member of %q is of %q", key, day)
		}
	})
}

// FuzzParseKeys covers every parser of a key or a subject: what it accepts is
// exactly what its maker makes.
func FuzzParseKeys(f *testing.F) {
	for _, key := range []string{
		RegistryGuestKey("arctic", "allsky-1"), RegistryMoverKey("arctic", MirrorScheduled), MirroredSubject("thule", "arctic_allsky-1"),
		MirroredPath("arctic", "arctic_allsky-1"), ManifestPartKey("thule", "arctic_allsky-1", "2026-11-21", 7),
		ManifestPartKey("thule", "allsky-1", "2026-11-21", 7), ManifestVersionKey("thule", "allsky-1", "2026-11-21", 2), sampleRaw().Key,
		RootKey("thule", "allsky-1", 17),
		sampleSegment().Key, LedgerKey("allsky-1", "2026-11-21", StepReceived, "gateway-0"), RegistryInstrumentKey("a"),
		GatewayStatusKey("gateway-0"), InstrumentStatusKey("allsky-1", "gateway-0"), ObservationSubject("thule", "mag-1", "raw"), PublicationID("gateway-0", "one", 7),
	} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		same := func(made string, err error) {
			t.Helper()
			if err != nil {
				explained(t, err)
			} else if made != key {
				t.Fatalf("%q reads as %q", key, made)
			}
		}
		m, err := ParseManifestKey(key)
		if m.Compacted {
			same(ManifestVersionKey(m.Site, m.Instrument, m.Day, m.Number), err)
		} else {
			same(ManifestPartKey(m.Site, m.Instrument, m.Day, m.Number), err)
		}
		rootSite, rootInstrument, root, err := ParseRootKey(key)
		same(RootKey(rootSite, rootInstrument, root), err)
		instrument, day, step, writer, err := ParseLedgerKey(key)
		same(LedgerKey(instrument, day, step, writer), err)
		if s, ok := ParseSegmentKey(key); ok && !strings.Contains(key, "/"+s.Channel+"/") {
			t.Fatalf("%q reads as %+v", key, s)
		}
		gateway, incarnation, sequence, err := ParsePublicationID(key)
		same(PublicationID(gateway, incarnation, sequence), err)
		site, instrument, channel, err := ParseObservationSubject(key)
		same(ObservationSubject(site, instrument, channel), err)
		if i, ok := ParseRegistryInstrumentKey(key); ok {
			same(RegistryInstrumentKey(i), nil)
		}
		if name, ok := ParseRegistryGuestKey(key); ok {
			origin, there, _ := ParseGuestName(name)
			same(RegistryGuestKey(origin, there), nil)
		}
		if name, ok := ParseRegistryMoverKey(key); ok {
			partner, kind, _ := strings.Cut(name, ".")
			same(RegistryMoverKey(partner, kind), nil)
		}
		if partner, i, ok := ParseMirroredPath(key); ok {
			same(MirroredPath(partner, i), nil)
		}
		if i, g, ok := ParseStatusKey(key); ok && i == "" {
			same(GatewayStatusKey(g), nil)
		} else if ok {
			same(InstrumentStatusKey(i, g), nil)
		}
		if day, ok := DayOfKey(key); ok && !strings.Contains(key, "/"+day.path()+"/") {
			t.Fatalf("%q reads as of day %q", key, day)
		}
		site, instrument, err = InstrumentOfKey(key)
		if err == nil && !strings.HasPrefix(key, InstrumentPrefix(site, instrument)) {
			t.Fatalf("%q reads as site %q, instrument %q", key, site, instrument)
		}
	})
}

func FuzzParseSamplingRequestKey(f *testing.F) {
	f.Add("request.allsky-1._.browser")
	f.Add("request.allsky-1.burst.browser")
	f.Add("request..a.b")
	f.Fuzz(func(t *testing.T, key string) {
		instrument, channel, consumer, ok := ParseSamplingRequestKey(key)
		if ok && SamplingRequestKey(instrument, channel, consumer) != key {
			t.Fatalf("%q reads as %q, %q, %q", key, instrument, channel, consumer)
		}
	})
}

// FuzzParseLegacyPath: what is read is written the same.
func FuzzParseLegacyPath(f *testing.F) {
	for _, seed := range []string{"legacy/192.0.2.7/5000/2026/11/21", "legacy/2001:db8::7/1/2026/11/21", "legacy/::ffff:192.0.2.7/5000/2026/11/21",
		"legacy/192.0.2.7/05000/2026/11/21", "legacy/fe80::1%eth0/5/2026/02/30", "legacy//0/2026/11/21", "legacy/192.0.2.7/5000/2026/11/21/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		l, err := ParseLegacyPath(path)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if l.Path() != path || l.Port == 0 || l.Address.Is4In6() {
			t.Fatalf("%q is read as %+v, which is written %q", path, l, l.Path())
		}
	})
}
