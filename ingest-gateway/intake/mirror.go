// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// MirrorListener is the name of the listener to which runs of mirrors send.
const MirrorListener = "mirror"

const (
	// mirrorIdle is for how long a run may send nothing within a body: it waits for the server that it pulls from.
	mirrorIdle = 2 * time.Minute
	// mirrorMaxAge is how long a body may take: the greatest object over a slow line does.
	mirrorMaxAge = 7 * 24 * time.Hour
)

// Mirrored is what a run of a mirror says of whom it sends for, and what it shows.
type Mirrored struct {
	Partner, Instrument string
	Object              wire.MirroredObject
	// Certificate is the SHA-256 of the one that the run shows.
	Certificate wire.Digest
}

// Reasons for which a run is refused. Those that a moment may change are ErrNotYet, too: what the run wrote into the registry
// may not have come here.
var (
	ErrNotYet = errors.New("not known to this gateway")

	errNoPull     = errors.New("no MirrorPartner with this name has direction Pull")
	errNotOfIt    = errors.New("the partner is another Substorm, and its objects belong to that Site: send its instruments under <origin>_<instrument>, with the origin")
	errNotOrigin  = errors.New("only objects pulled from another Substorm have an origin, and go to instruments of another Site")
	errNotInPaths = errors.New("spec.paths of the MirrorPartner does not name this Instrument")
	errListens    = errors.New("the Instrument has listeners, and a pull must not take the names of its senders: " +
		"declare an Instrument without listeners for the pulled objects, and name it in spec.paths of the MirrorPartner")
)

// Mirror returns the listener to which a run of a mirror sends an object, and, if it may not send it, why: the run must be one of the
// partner, by its certificate; and the instrument one of the Site that the partner pulls from or, where that is no Substorm, one
// without listeners to which the partner's paths give something.
func (s *Snapshot) Mirror(m Mirrored) (*Listener, wire.Cause, error) {
	if s.registry == nil {
		return nil, wire.CauseBadCertificate, fmt.Errorf("partner %s: %w", m.Partner, ErrNotYet)
	}
	entry, known := s.registry.Mirrors[m.Partner]
	switch {
	case !known || entry.Direction != wire.MirrorPull:
		return nil, wire.CauseUnknownSource, fmt.Errorf("partner %s: %w", m.Partner, errNoPull)
	case !slices.Contains(s.registry.Movers[m.Partner], m.Certificate):
		return nil, wire.CauseBadCertificate, fmt.Errorf("certificate %s of a run of partner %s: %w", m.Certificate, m.Partner, ErrNotYet)
	}
	if err := mayBring(&entry, m); err != nil {
		return nil, wire.CauseUnknownInstrument, fmt.Errorf("partner %s, instrument %s: %w", m.Partner, m.Instrument, err)
	}
	in := s.known[m.Instrument]
	if in == nil {
		return nil, wire.CauseUnknownInstrument, fmt.Errorf("instrument %s: %w", m.Instrument, ErrNotYet)
	}
	listener := &Listener{Instrument: in, Name: MirrorListener, Protocol: wire.ProtocolHTTP, IdleTimeout: mirrorIdle, MaxAge: mirrorMaxAge}
	if in.Retired {
		return listener, wire.CauseRetired, nil
	}
	if len(in.entry.Listeners) > 0 {
		return nil, wire.CauseUnknownInstrument, fmt.Errorf("partner %s, instrument %s: %w", m.Partner, m.Instrument, errListens)
	}
	return listener, "", nil
}

// mayBring returns why a partner's runs may not bring an object to an instrument.
func mayBring(entry *wire.MirrorEntry, m Mirrored) error {
	site, _, isGuest := wire.ParseGuestName(m.Instrument)
	origin := m.Object.Origin
	if h := entry.HTTPS; h != nil && h.Source == wire.MirrorSourceSubstorm {
		if !isGuest || origin == nil || site != h.Origin || origin.Site != h.Origin {
			return errNotOfIt
		}
		return nil
	}
	switch {
	case isGuest || origin != nil:
		return errNotOrigin
	case !slices.ContainsFunc(entry.Paths, func(p wire.MirrorPath) bool { return p.Instrument == m.Instrument }):
		return errNotInPaths
	}
	return nil
}
