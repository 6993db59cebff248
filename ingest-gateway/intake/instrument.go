// SPDX-License-Identifier: Apache-2.0

// Package intake knows which senders may send: it follows the Site's registry and answers, for a
// protocol, a port and an address, which instrument that is.
package intake

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/wire"
)

// Instrument is an instrument as the registry declares it. It is never changed
// once made; a new generation is a new Instrument.
type Instrument struct {
	Name       string
	UID        string
	Generation int64
	// Pool is the IngestGateway that receives; empty if none does.
	Pool string
	// Origin is the code of the Site that it is an instrument of; empty: of this one.
	Origin string
	// Revision of the registry in which the instrument last changed.
	Revision int64
	// Retired instruments are known, and refused.
	Retired   bool
	Listeners []*Listener

	// MaxObjectSize in bytes.
	MaxObjectSize int64
	// MaxConnections open at a time on this gateway.
	MaxConnections int
	// Acknowledge is spelled as in the Instrument's spec.
	Acknowledge string
	MediaType   string
	// KeepVersions: another object under a known name is its next version, and not refused.
	KeepVersions bool

	// Naming is the template of published paths, nil without one; Station is what
	// it calls so.
	Naming  *naming.Template
	Station string
	// ObservationName reads when an object was observed out of the name that its sender gave; nil
	// if names do not have it. An object that comes later than LateAfter is backfill.
	ObservationName *naming.Template
	LateAfter       time.Duration

	Cadence      time.Duration
	RepeatWindow time.Duration
	// SegmentAge and SegmentSize (bytes of messages) close a segment.
	SegmentAge  time.Duration
	SegmentSize int64
	// PackBelow is the size in bytes up to which an object may be stored in a pack.
	PackBelow int64

	// Limit is how much this gateway takes of it; nil for no limit.
	Limit *Limit

	// entry is what the instrument was made from, as it goes to the volume.
	entry wire.InstrumentEntry
}

// Listener is where an instrument sends to: a port, or a path of HTTP, and what its senders must show.
type Listener struct {
	Instrument *Instrument
	// Name of the listener, by which it is reported of.
	Name string
	// Protocol is wire.ProtocolTCP, wire.ProtocolUDP or wire.ProtocolHTTP.
	Protocol string
	Port     uint16
	// Sources that the instrument sends from; empty means any address.
	Sources []netip.Prefix
	// TLS is wire.TLSServer, wire.TLSMutual, or empty where bytes are plain.
	TLS string
	// CertificateNames are the names one of which the sender's certificate must bear; empty: any.
	CertificateNames []string
	// Tokens are the tokens one of which the sender must show; empty: it shows none.
	Tokens []wire.TokenHash

	// The following fields are for TCP. Framing is one of wire's.
	Framing string
	// IdleAfter ends an object of wire.FramingIdle.
	IdleAfter time.Duration
	// Expect is nil if whole objects have no conditions.
	Expect *Expect
	// CloseReceipt: the sender gets no line, only the close.
	CloseReceipt bool
	// IdleTimeout ends a connection on which nothing arrives within an object (of
	// HTTP: within a body), Quiet one on which nothing arrives between objects, MaxAge one whose object
	// is older.
	IdleTimeout, Quiet time.Duration
	MaxAge             time.Duration

	// Channel of UDP.
	Channel string

	// UploadExpiry of HTTP is how long an unfinished upload is kept.
	UploadExpiry time.Duration
}

// NewInstrument reads a registry entry. Errors name what is wrong with it.
func NewInstrument(e wire.InstrumentEntry) (*Instrument, error) {
	if e.Instrument == "" || e.MaxObjectSize <= 0 || e.MaxConnections <= 0 {
		return nil, fmt.Errorf("instrument %q: maxObjectSize %d and maxConnections %d must be positive: %w",
			e.Instrument, e.MaxObjectSize, e.MaxConnections, wire.ErrMalformed)
	}
	in := &Instrument{
		Name:           e.Instrument,
		UID:            e.UID,
		Generation:     e.Generation,
		Pool:           e.Gateway,
		Origin:         e.Origin,
		Revision:       e.Revision,
		Retired:        e.Retired,
		MaxObjectSize:  e.MaxObjectSize,
		MaxConnections: e.MaxConnections,
		Acknowledge:    e.Acknowledge,
		MediaType:      e.MediaType,
		KeepVersions:   e.Versions == wire.VersionsKeep,
		Cadence:        millis(e.CadenceMillis),
		RepeatWindow:   millis(e.RepeatWindowMillis),
		SegmentAge:     millis(e.SegmentAgeMillis),
		SegmentSize:    e.SegmentSize,
		PackBelow:      e.PackBelow,
		LateAfter:      e.LateAfter(),
		Station:        e.Station,
		Limit:          newLimit(e.BytesPerSecond, e.ObjectsPerSecond),
		entry:          e,
	}
	if e.Versions != "" && e.Versions != wire.VersionsKeep {
		return nil, fmt.Errorf("instrument %q: unknown versions %q: upgrade this gateway", e.Instrument, e.Versions)
	}
	for _, t := range []struct {
		text string
		of   **naming.Template
	}{{e.Naming, &in.Naming}, {e.ObservationName, &in.ObservationName}} {
		if t.text == "" {
			continue
		}
		var err error
		if *t.of, err = naming.Parse(t.text); err != nil {
			return nil, fmt.Errorf("instrument %q: %w: upgrade this gateway or give it another template", e.Instrument, err)
		}
	}
	if in.ObservationName != nil && !in.ObservationName.HasTime() {
		return nil, fmt.Errorf("instrument %q: observation time: template %q holds no day: %w", e.Instrument, e.ObservationName, wire.ErrMalformed)
	}
	for i, w := range e.Listeners {
		listener, err := newListener(in, w)
		if err != nil {
			return nil, fmt.Errorf("instrument %q: listener %d: %w", e.Instrument, i, err)
		}
		in.Listeners = append(in.Listeners, listener)
	}
	return in, nil
}

func newListener(in *Instrument, e wire.ListenerEntry) (*Listener, error) {
	listener := &Listener{Instrument: in, Name: e.Name, Protocol: e.Protocol, Port: e.Port}
	if e.Port == 0 {
		return nil, fmt.Errorf("port 0: %w", wire.ErrMalformed)
	}
	for _, s := range e.Sources {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("source %q: %w: %v", s, wire.ErrMalformed, err)
		}
		listener.Sources = append(listener.Sources, unmap(p))
	}
	if err := listener.readIdentity(e); err != nil {
		return nil, err
	}
	switch e.Protocol {
	case wire.ProtocolTCP:
		if err := listener.readTCP(e); err != nil {
			return nil, err
		}
	case wire.ProtocolUDP:
		if e.Channel == "" {
			return nil, fmt.Errorf("no channel: %w", wire.ErrMalformed)
		}
		listener.Channel = e.Channel
	case wire.ProtocolHTTP:
		if e.IdleTimeoutMillis <= 0 || e.MaxAgeMillis <= 0 || e.UploadExpiryMillis <= 0 {
			return nil, fmt.Errorf("idle timeout, greatest age and expiry of uploads must be positive: %w", wire.ErrMalformed)
		}
		listener.IdleTimeout, listener.MaxAge = millis(e.IdleTimeoutMillis), millis(e.MaxAgeMillis)
		listener.UploadExpiry = millis(e.UploadExpiryMillis)
	default:
		return nil, fmt.Errorf("unknown protocol %q: upgrade this gateway", e.Protocol)
	}
	return listener, nil
}

// readIdentity reads what the sender must show. It must not ignore a requirement that this gateway does not know.
func (w *Listener) readIdentity(e wire.ListenerEntry) error {
	switch {
	case e.TLS != "" && e.TLS != wire.TLSServer && e.TLS != wire.TLSMutual:
		return fmt.Errorf("unknown tls %q: upgrade this gateway", e.TLS)
	case e.TLS != "" && e.Protocol == wire.ProtocolUDP:
		return fmt.Errorf("tls %s over UDP: %w", e.TLS, wire.ErrMalformed)
	case len(e.CertificateNames) > 0 && e.TLS != wire.TLSMutual:
		return fmt.Errorf("certificate names without tls Mutual: %w", wire.ErrMalformed)
	case len(e.Tokens) > 0 && (e.TLS == "" || e.Protocol != wire.ProtocolHTTP):
		return fmt.Errorf("tokens cannot be used over %s with tls %q: %w", e.Protocol, e.TLS, wire.ErrMalformed)
	}
	for _, t := range e.Tokens {
		if !t.Valid() {
			return fmt.Errorf("invalid hash of a token: %w", wire.ErrMalformed)
		}
	}
	w.TLS, w.CertificateNames, w.Tokens = e.TLS, e.CertificateNames, e.Tokens
	return nil
}

// quietCadences is how many cadences a connection may be silent between objects:
// an instrument that is due is late only then.
const quietCadences = 2

// readTCP reads what a listener over TCP has beside its port and sources.
func (w *Listener) readTCP(e wire.ListenerEntry) (err error) {
	switch e.Framing {
	case wire.FramingUntilClose, wire.FramingLines, wire.FramingLengthPrefixed, wire.FramingIdle:
	default:
		return fmt.Errorf("unknown framing %q: upgrade this gateway", e.Framing)
	}
	if e.Receipt != wire.ReceiptLine && e.Receipt != wire.ReceiptClose {
		return fmt.Errorf("unknown receipt %q: upgrade this gateway", e.Receipt)
	}
	if e.IdleTimeoutMillis <= 0 || e.MaxAgeMillis <= 0 {
		return fmt.Errorf("idle timeout and greatest age must be positive: %w", wire.ErrMalformed)
	}
	if (e.Framing == wire.FramingIdle) != (e.IdleAfterMillis > 0) {
		return fmt.Errorf("framing %s with a pause of %d ms: %w", e.Framing, e.IdleAfterMillis, wire.ErrMalformed)
	}
	w.Framing, w.IdleAfter = e.Framing, millis(e.IdleAfterMillis)
	w.CloseReceipt = e.Receipt == wire.ReceiptClose
	w.IdleTimeout, w.MaxAge = millis(e.IdleTimeoutMillis), millis(e.MaxAgeMillis)
	w.Quiet = max(w.IdleTimeout, quietCadences*w.Instrument.Cadence)
	w.Expect, err = newExpect(e.Expect)
	return err
}

// unmap makes an IPv4 prefix of one that is written as IPv4-mapped IPv6: senders
// are looked up by their IPv4 address.
func unmap(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked()
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
