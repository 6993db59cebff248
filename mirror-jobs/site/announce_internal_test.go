// SPDX-License-Identifier: Apache-2.0

package site

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
)

func newTestAnnouncer(t *testing.T, guests int) (*announcer, jetstream.KeyValue) {
	t.Helper()
	js := testenv.NATS(t, testenv.NATSOptions{Unsynced: true}).JetStream(t)
	testenv.CreateSite(t, js, "hub")
	s := &registry.Snapshot{Instruments: map[string]wire.InstrumentEntry{"cam": {Instrument: "cam"}, "north_cam": {Instrument: "north_cam"}}}
	for i := range guests {
		name := wire.GuestName("arctic", fmt.Sprintf("mag-%d", i))
		s.Instruments[name] = wire.InstrumentEntry{Instrument: name}
	}
	a, err := newAnnouncer(t.Context(), &Config{Site: "hub", Entry: wire.MirrorEntry{Partner: "north", HTTPS: &wire.MirrorHTTPS{Origin: "arctic"}},
		JetStream: js, Registry: func() *registry.Snapshot { return s }, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return a, a.entries
}

// TestOtherSiteCannotFillTheRegistry: the number of instruments of another Site here is limited, and a run that is offered more says so.
func TestOtherSiteCannotFillTheRegistry(t *testing.T) {
	t.Parallel()
	a, kv := newTestAnnouncer(t, wire.MaxGuests-1)
	tell := func(instrument string) error {
		return a.guest(t.Context(), mirrorindex.DaysLine{Instrument: instrument}, time.Now())
	}
	for _, known := range []string{"last", "last", "mag-7"} {
		if err := tell(known); err != nil {
			t.Errorf("%s: %v", known, err)
		}
	}
	var p *push.Problem
	if err := tell("more"); !errors.As(err, &p) || p.Reason != wire.MirrorReasonTooMany || !strings.Contains(err.Error(), "spec.selection") {
		t.Errorf("one too many: %v", err)
	}
	if _, err := kv.Get(t.Context(), wire.RegistryGuestKey("arctic", "more")); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("it is in the registry: %v", err)
	}
}

// TestWhatIsToldIsChecked: names that no instrument has end the run, and texts that none could have are left out.
func TestWhatIsToldIsChecked(t *testing.T) {
	t.Parallel()
	a, kv := newTestAnnouncer(t, 0)
	var p *push.Problem
	for _, name := range []string{"cam_1", "a.b", "a/../b", "*", ""} {
		if err := a.guest(t.Context(), mirrorindex.DaysLine{Instrument: name}, time.Now()); !errors.As(err, &p) || p.Reason != wire.MirrorReasonProtocol {
			t.Errorf("%q: %v", name, err)
		}
	}
	err := a.guest(t.Context(), mirrorindex.DaysLine{Instrument: "cam", Station: "kev", Rights: &wire.RightsEntry{
		License: "x>; rel=\"stylesheet\"", Citation: strings.Repeat("x", 1<<19), Credit: "Image:\nThule"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	e, _, err := stream.Record[wire.GuestEntry](t.Context(), kv, wire.RegistryGuestKey("arctic", "cam"))
	if err != nil || *e.Rights != (wire.RightsEntry{Credit: "Image: Thule"}) || e.Station != "kev" || e.Access.Archive != wire.AccessRestricted {
		t.Errorf("%+v, %+v, %v", e, e.Rights, err)
	}
}
