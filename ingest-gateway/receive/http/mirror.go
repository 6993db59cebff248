// SPDX-License-Identifier: Apache-2.0

package http

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/receive/listen"
	"github.com/substorm/substorm/ingest-gateway/store"
	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/wire"
)

// Runs of mirrors send what they pulled as any sender sends, to a port of their own. The listeners of Instruments do not
// apply there: a run shows a certificate that it has reported to the Site over NATS, and is shown the one that the gateway
// has reported to the Site. intake.Snapshot.Mirror says what a run may bring.

// mirror is the port to which runs of mirrors send.
type mirror struct {
	port        uint16
	certificate *certificate.Ephemeral
	http        *http.Server
}

// ListenMirror receives from runs of mirrors on an address, host:port, until Drain. It is called once.
func (s *Server) ListenMirror(address string) error {
	shown, err := certificate.NewEphemeral("substorm gateway")
	if err != nil {
		return err
	}
	l, err := listen.OpenAddress(&listen.Config{Protocol: wire.ProtocolHTTP, Slots: s.cfg.Slots, Logger: s.cfg.Logger}, address)
	if err != nil {
		return fmt.Errorf("listen for runs of mirrors: %w", err)
	}
	s.mirror = &mirror{port: l.Port, certificate: shown, http: s.newHTTP(http.HandlerFunc(s.serveMirrored))}
	cfg := shown.Server()
	cfg.NextProtos = []string{"h2", "http/1.1"}
	go s.serveFrom(s.mirror.http, l, func(c *conn) net.Conn { return tls.Server(c, cfg) })
	s.cfg.Logger.Info("listening", "protocol", "mirror", "address", l.Addr().String())
	return nil
}

// Mirror returns the port to which runs of mirrors send, and the SHA-256 of the certificate that they see there; false where
// they are not received from.
func (s *Server) Mirror() (port uint16, shown wire.Digest, ok bool) {
	if s.mirror == nil {
		return 0, wire.Digest{}, false
	}
	return s.mirror.port, s.mirror.certificate.Digest(), true
}

// mirrorVerdicts are the verdicts that say other things to a run of a mirror than to other senders.
var mirrorVerdicts = map[wire.Cause]verdict{
	wire.CauseUnknownSource:     {http.StatusForbidden, 0, "give its MirrorPartner spec.direction Pull"},
	wire.CauseUnknownInstrument: {http.StatusForbidden, 0, ""},
	wire.CauseBadCertificate:    {http.StatusForbidden, 0, "a run shows the certificate whose SHA-256 it wrote into the registry"},
	wire.CauseDigestMismatch:    {http.StatusBadRequest, 0, "pull the object again: it is not what its source said"},
}

// serveMirrored receives an object that a run of a mirror pulled.
func (s *Server) serveMirrored(w http.ResponseWriter, r *http.Request) {
	q := s.newRequest(w, r)
	q.mirrored = true
	partner, instrument, ok := wire.ParseMirroredPath(r.URL.Path)
	switch {
	case !ok:
		q.refuseUnread(wire.CauseUnknownInstrument, fmt.Errorf("runs of mirrors must send to %s", wire.MirroredPath("<partner>", "<instrument>")))
		return
	case r.Method != http.MethodPut:
		q.notAllowed(http.MethodPut)
		return
	}
	m, err := wire.ParseMirroredObject(r.Header.Get(wire.HeaderRecord))
	if err != nil {
		q.refuseUnread(wire.CauseBadRequest, fmt.Errorf("%s: %w", wire.HeaderRecord, err))
		return
	}
	shown, _ := certificate.Shown(r.TLS)
	listener, cause, err := s.cfg.Registry.Current().Mirror(intake.Mirrored{Partner: partner, Instrument: instrument, Object: m, Certificate: shown})
	q.listener = listener
	if q.refusedPage() {
		return
	}
	if cause != "" {
		q.refuseMirror(cause, err)
		return
	}
	q.admit(func() { q.receiveMirrored(m) })
}

// refuseMirror refuses a run that may not send what it sends.
func (q *request) refuseMirror(cause wire.Cause, err error) {
	if errors.Is(err, intake.ErrNotYet) {
		q.w.Header().Set("Retry-After", strconv.Itoa(retrySoon))
	}
	q.server.cfg.Slow.Hold(q.r.Context(), cause, q.source.Addr())
	q.refuseUnread(cause, err)
}

// maxAhead is how far the clock of a Site may be ahead of ours.
const maxAhead = 24 * time.Hour

// receiveMirrored receives one object of a guest, or of an instrument of the Site.
func (q *request) receiveMirrored(m wire.MirroredObject) {
	wanted, size, err := q.wantedOf(m)
	if err != nil {
		q.refuseUnread(wire.CauseBadRequest, err)
		return
	}
	if q.r.ContentLength > q.limit() || size > q.limit() {
		q.refuseUnread(wire.CauseObjectTooLarge, nil)
		return
	}
	archive, in := q.server.cfg.Archive, q.listener.Instrument
	if !q.mayBegin() || m.Origin == nil && q.answerKnown(m.Path, wanted) {
		return
	}
	q.take("", wanted, size, func(wake func()) *store.Object {
		if m.Origin != nil {
			return archive.BeginMirrored(in, q.source, wake, m)
		}
		o := archive.Begin(in, q.source, wake)
		o.Describe(m.Path, m.MediaType)
		return o
	})
}

// wantedOf returns the digests and the size that an object must have, as the run and its request say. Errors say why there
// can be no such object.
func (q *request) wantedOf(m wire.MirroredObject) (wanted digests, size int64, err error) {
	if wanted, err = q.wanted(); err != nil {
		return nil, 0, err
	}
	if m.Digest != (wire.Digest{}) {
		wanted[wire.HeaderRecord] = m.Digest
	}
	switch {
	case m.Origin == nil && m.Size == 0:
		return wanted, anySize, wire.CheckSentName(m.Path)
	case m.Origin == nil:
		return wanted, m.Size, wire.CheckSentName(m.Path)
	case time.Until(m.ReceivedAt) > maxAhead:
		return nil, 0, fmt.Errorf("%s: receivedAt %s is more than %v ahead of this gateway's clock: set the clock that is wrong", wire.HeaderRecord, wire.FormatTime(m.ReceivedAt), maxAhead)
	default:
		return wanted, m.Size, q.server.cfg.Archive.CheckMirrored(q.listener.Instrument, q.source, m)
	}
}
