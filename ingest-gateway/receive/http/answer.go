// SPDX-License-Identifier: Apache-2.0

package http

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/store"
	"github.com/substorm/substorm/internal/nameclaims"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

// Retry-After in seconds: of what another gateway, or a moment, may change, and
// of what takes a server to come back.
const (
	retrySoon = 1
	retryAway = 5
)

// verdict is the answer to a sender for a cause.
type verdict struct {
	status int
	// retryAfter in seconds; 0 for none.
	retryAfter int
	// advice is what to do.
	advice string
}

var verdicts = map[wire.Cause]verdict{
	wire.CauseBadRequest:         {http.StatusBadRequest, 0, ""},
	wire.CauseDigestMismatch:     {http.StatusBadRequest, 0, "send the object again; if that fails too, the file has changed since its digest was computed"},
	wire.CauseUnknownSource:      {http.StatusForbidden, 0, "add the sender's address to the listener's sources, or send from one of these"},
	wire.CauseUnknownInstrument:  {http.StatusNotFound, 0, "send to /in/<instrument>/ of an Instrument that has a listener with protocol HTTP on this port"},
	wire.CauseBadToken:           {http.StatusUnauthorized, 0, "show the token of the Instrument's tokenSecretKeyRef: Authorization: Bearer …, or Basic with the token as password"},
	wire.CauseBadCertificate:     {http.StatusForbidden, 0, "show a certificate of the pool's client authorities, with a name that the Instrument declares"},
	wire.CauseTLSHandshake:       {http.StatusForbidden, 0, "send over TLS where http.tls says so, and only there"},
	wire.CauseCrossOrigin:        {http.StatusForbidden, 0, ""},
	wire.CauseRateLimited:        {http.StatusTooManyRequests, retrySoon, "send fewer objects a second, or raise limits.objectsPerSecond"},
	wire.CauseStalled:            {http.StatusRequestTimeout, 0, "send again, without pauses longer than http.idleTimeout"},
	wire.CauseTooOld:             {http.StatusRequestTimeout, 0, "send again faster, or by tus, or raise http.maxAge"},
	wire.CauseNameConflict:       {http.StatusConflict, 0, "choose another name, or set archive.versions: Keep"},
	wire.CausePreconditionFailed: {http.StatusPreconditionFailed, 0, ""},
	wire.CauseRetired:            {http.StatusGone, 0, "the Instrument's state is Retired: set it to Active"},
	wire.CauseObjectTooLarge:     {http.StatusRequestEntityTooLarge, 0, "send smaller objects, or raise limits.maxObjectSize"},
	wire.CauseTooManyConnections: {http.StatusTooManyRequests, retrySoon, "send fewer at a time, or raise limits.maxConnections"},
	wire.CauseDisplaced:          {http.StatusTooManyRequests, retrySoon, "limits.maxConnections requests are open, and this one was slow, or its address had the most: send fewer at a time"},
	wire.CauseEmpty:              {http.StatusBadRequest, 0, "send at least one byte, with Content-Length or in chunks (HTTP/1.1)"},
	wire.CauseReset:              {http.StatusBadRequest, 0, "the body ended early: send again"},
}

// unsafe is the verdict of what may be taken if it is sent again.
var unsafe = verdict{http.StatusServiceUnavailable, retryAway, "the object is not safe here: send it again"}

// verdict returns the answer to the request's sender for a cause.
func (q *request) verdict(cause wire.Cause) verdict {
	if q.mirrored {
		if v, known := mirrorVerdicts[cause]; known {
			return v
		}
	}
	if v, known := verdicts[cause]; known {
		return v
	}
	return unsafe
}

// document is a problem with its cause as metrics and ledger spell it.
type document struct {
	*problem.Problem
	Cause wire.Cause `json:"cause"`
}

// refuse counts, logs and answers that an object is refused after size bytes had come. The ledger
// has counted it already.
func (q *request) refuse(cause wire.Cause, size int64, err error) {
	q.server.cfg.Refusals.Say(q.name(), cause, q.source, size, err)
	v := q.verdict(cause)
	detail := q.r.URL.Path
	if err != nil && v.status < http.StatusInternalServerError {
		detail += ": " + err.Error()
	}
	if errors.As(err, new(*nameclaims.FolderError)) {
		v.advice = "choose another name"
	}
	if v.advice != "" {
		detail += ": " + v.advice
	}
	q.answerProblem(v, cause, detail)
}

// refuseUnread is refuse for a request of whose body nothing was read, and which
// the ledger knows nothing of.
func (q *request) refuseUnread(cause wire.Cause, err error) {
	q.server.cfg.Archive.Refused(q.name(), cause)
	q.refuse(cause, 0, err)
}

// refuseSender refuses a sender that may not send.
func (q *request) refuseSender(refusal intake.Refusal) {
	cfg := &q.server.cfg
	q.endConnection()
	if v := q.verdict(refusal.Cause); v.status == http.StatusUnauthorized {
		q.w.Header()["Www-Authenticate"] = []string{"Bearer", `Basic realm="observations", charset="UTF-8"`}
		if len(q.r.Header["Authorization"]) == 0 { // it waits to be asked, and has tried no token (RFC 9110, 11.6.1)
			q.server.metrics.challenged.WithLabelValues(refusal.Name()).Inc()
			q.answerProblem(v, refusal.Cause, q.r.URL.Path+": "+v.advice)
			return
		}
	}
	cfg.Registry.Refusals.Note(refusal, wire.ProtocolHTTP, q.port, q.source.Addr(), 1)
	name := wire.UnknownInstrument
	if refusal.Cause == wire.CauseRetired {
		name = refusal.Name()
	}
	cfg.Archive.Refused(name, refusal.Cause)
	cfg.Refusals.SayNearly(name, refusal, q.source, q.port, nil)
	cfg.Slow.Hold(q.r.Context(), refusal.Cause, q.source.Addr())
	v := q.verdict(refusal.Cause)
	q.answerProblem(v, refusal.Cause, q.r.URL.Path+": "+v.advice)
}

// endConnection has the connection closed behind the answer.
func (q *request) endConnection() { q.w.Header().Set("Connection", "close") }

func (q *request) answerProblem(v verdict, cause wire.Cause, detail string) {
	body, err := json.Marshal(document{problem.New(v.status, "%s", detail), cause})
	if err != nil { // never: it is text
		body = nil
	}
	h := q.w.Header()
	if v.retryAfter > 0 && h.Get("Retry-After") == "" {
		h.Set("Retry-After", strconv.Itoa(v.retryAfter))
	}
	h.Set("Content-Type", problem.ContentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	// Over HTTP/2 too: a client whose stream is reset while it sends (curl) gives up, and does not show its token, say.
	linger := q.unread
	if linger && q.r.ProtoMajor == 1 {
		h.Set("Connection", "close")
		_ = q.control.EnableFullDuplex()
	}
	_ = q.control.SetWriteDeadline(time.Now().Add(answerTimeout))
	q.w.WriteHeader(v.status)
	_, _ = q.w.Write(body)
	if linger {
		_ = q.control.Flush()
		q.discard()
	}
}

// answerKept is the receipt.
func (q *request) answerKept(kept store.Kept) {
	h := q.w.Header()
	h.Set("Location", locationOf(kept))
	setDigest(h, kept.Digest)
	status := http.StatusCreated
	if kept.Again {
		status = http.StatusOK
	}
	q.answerReceipt(status, kept)
}

func locationOf(kept store.Kept) string { return (&url.URL{Path: "/" + kept.ID}).EscapedPath() }

func setDigest(h http.Header, d wire.Digest) {
	h.Set("ETag", tagOf(d))
	h.Set("Repr-Digest", algorithm+"=:"+base64.StdEncoding.EncodeToString(d[:])+":")
}

// answerReceipt writes an answer that says that an object is safe, and counts it
// where that could be written.
func (q *request) answerReceipt(status int, kept store.Kept) {
	h := q.w.Header()
	if status != http.StatusNoContent {
		h.Set("Content-Length", "0")
	}
	_ = q.control.SetWriteDeadline(time.Now().Add(answerTimeout))
	q.w.WriteHeader(status)
	if err := q.control.Flush(); err != nil {
		q.server.cfg.Logger.Warn("receipt not delivered: the object is safe, and a repeat of it will be recognized as a duplicate",
			"instrument", q.name(), "source", q.source, "sha256", kept.Digest.String(), "error", err)
		return
	}
	if !kept.Again {
		q.server.cfg.Archive.Acknowledged(q.listener.Instrument, kept.ReceivedAt)
	}
}
