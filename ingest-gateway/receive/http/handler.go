// SPDX-License-Identifier: Apache-2.0

package http

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/receive/listen"
	"github.com/substorm/substorm/internal/wire"
)

// request is one request. It belongs to one goroutine.
type request struct {
	server  *Server
	w       http.ResponseWriter
	r       *http.Request
	control *http.ResponseController
	source  netip.AddrPort
	port    uint16
	began   time.Time
	// listener is nil for unknown senders.
	listener *intake.Listener
	// unread: something of the body may still come.
	unread bool
	// mirrored: a run of a mirror sends it.
	mirrored bool
	// entry is the request's share of what its instrument may have open; displaced is
	// closed where it gives way to another.
	entry     *listen.Entry
	displaced chan struct{}
}

func (s *Server) newRequest(w http.ResponseWriter, r *http.Request) *request {
	q := &request{server: s, w: w, r: r, control: http.NewResponseController(w), began: time.Now(), unread: r.ContentLength != 0}
	q.port, q.source = addresses(r)
	if len(r.TransferEncoding) > 0 {
		// A Content-Length beside it was dropped before we could see it. A proxy may have gone by that, and what it takes for
		// the body's end would be our next request (RFC 9112, 6.1).
		q.endConnection()
	}
	// Until its body is read for an object, a request may not take long.
	_ = q.control.SetReadDeadline(q.began.Add(headerTimeout))
	return q
}

// name is the instrument's, for metrics and logs.
func (q *request) name() string {
	if q.listener == nil {
		return wire.UnknownInstrument
	}
	return q.listener.Instrument.Name
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := s.newRequest(w, r)
	instrument, rest, ok := wire.ParseUploadPath(r.URL.Path)
	if !ok {
		q.endConnection()
		q.refuseUnread(wire.CauseUnknownInstrument, nil)
		return
	}
	listener, refusal := s.cfg.Registry.Identify(q.claim(instrument))
	if refusal.Cause != "" {
		q.refuseSender(refusal)
		return
	}
	q.listener = listener
	if q.refusedPage() {
		return
	}
	q.admit(func() { q.route(rest) })
}

// admit continues with a request whose sender may send.
func (q *request) admit(goOn func()) {
	slot := q.slot()
	slot.Identified()
	if !q.enter(slot) {
		q.refuseUnread(wire.CauseTooManyConnections, nil)
		return
	}
	defer q.leave()
	goOn()
}

// slot is the slot of the request's connection.
func (q *request) slot() *listen.Slot { return q.r.Context().Value(slotKey{}).(*listen.Slot) }

// claim is how the sender identifies itself.
func (q *request) claim(instrument string) intake.Claim {
	c := intake.Claim{Protocol: wire.ProtocolHTTP, Port: q.port, Addr: q.source.Addr(), Instrument: instrument}
	if state := q.r.TLS; state != nil {
		c.Encrypted = true
		if len(state.VerifiedChains) > 0 {
			c.Certificate = state.PeerCertificates[0]
		}
	}
	c.Token = tokenOf(q.r)
	return c
}

// tokenOf returns the token that a request shows: as Bearer, or as the password of Basic, whose
// user name is ignored. Uploaders by WebDAV have no other field for it.
func tokenOf(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	if scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return ""
}

// methodMakeFolder is WebDAV's (RFC 4918, 9.3).
const methodMakeFolder = "MKCOL"

// makeFolder answers a client that makes a folder before it puts an object into it: names need no
// folders, so nothing is kept of it.
func (q *request) makeFolder(name string) {
	if q.unread {
		q.answerProblem(verdict{status: http.StatusUnsupportedMediaType}, wire.CauseBadRequest, q.r.URL.Path+": MKCOL has no body")
		return
	}
	if name != "" {
		if err := wire.CheckUploadName(name); err != nil {
			q.refuseUnread(wire.CauseBadRequest, err)
			return
		}
		if claim, found, err := q.server.cfg.Names.Lookup(q.server.ctx, q.name(), name); err == nil && found {
			if _, taken := claim.Latest(); taken { // while names are not known, nothing is refused: nothing is kept of a folder
				q.notAllowed("PUT, OPTIONS") // RFC 4918, 9.3.1
				return
			}
		}
	}
	q.w.Header().Set("Content-Length", "0")
	q.w.WriteHeader(http.StatusCreated)
}

func (q *request) route(rest string) {
	upload, isUpload := strings.CutPrefix(rest, wire.UploadsFolder+"/")
	switch method := q.method(); {
	case method == http.MethodOptions:
		q.describe()
	case isUpload || rest == wire.UploadsFolder:
		q.routeUpload(method, upload)
	case method == methodMakeFolder:
		q.makeFolder(strings.TrimSuffix(rest, "/"))
	case rest == "" && method == http.MethodPost && q.r.Header.Get(headerResumable) != "":
		q.createUpload()
	case rest == "" && method == http.MethodPost:
		q.receive("")
	case rest == "":
		q.notAllowed("POST, OPTIONS")
	case method == http.MethodPut:
		q.receive(rest)
	default:
		q.notAllowed("PUT, MKCOL, OPTIONS")
	}
}

func (q *request) notAllowed(allow string) {
	q.w.Header().Set("Allow", allow)
	q.answerProblem(verdict{status: http.StatusMethodNotAllowed}, wire.CauseBadRequest,
		q.r.Method+" "+q.r.URL.Path+": this path takes "+allow)
}
