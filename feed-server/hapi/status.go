// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/substorm/substorm/feed-server/endpoint"
)

// status is the status object of an answer.
type status struct {
	Code    code   `json:"code"`
	Message string `json:"message"`
}

// code is a HAPI status code, see section 4.2 of the specification.
type code int

const (
	codeOK               code = 1200
	codeNoData           code = 1201
	codeUserError        code = 1400
	codeUnknownField     code = 1401
	codeStart            code = 1402
	codeStop             code = 1403
	codeStartAfterStop   code = 1404
	codeOutside          code = 1405
	codeUnknownDataset   code = 1406
	codeUnknownParameter code = 1407
	codeTooMuch          code = 1408
	codeFormat           code = 1409
	codeInclude          code = 1410
	codeOrder            code = 1411
	codeReferences       code = 1412
	codeDepth            code = 1413
	codeInternal         code = 1500
	codeUpstream         code = 1501
)

// meanings are what the codes say, in the specification's sense.
var meanings = map[code]string{
	codeOK: "OK", codeNoData: "OK - no data for time range",
	codeUserError: "user input error", codeUnknownField: "unknown request parameter",
	codeStart: "error in start time", codeStop: "error in stop time", codeStartAfterStop: "start time equal to or after stop time",
	codeOutside: "time outside valid range", codeUnknownDataset: "unknown dataset id", codeUnknownParameter: "unknown dataset parameter",
	codeTooMuch: "too much time or data requested", codeFormat: "unsupported output format", codeInclude: "unsupported include value",
	codeOrder: "out of order or duplicate parameters", codeReferences: "unsupported resolve_references value",
	codeDepth: "unsupported depth value", codeInternal: "internal server error", codeUpstream: "upstream request error",
}

func (c code) status() status {
	s := status{Code: c, Message: meanings[c]}
	if c >= codeUserError {
		s.Message = "HAPI error " + strconv.Itoa(int(c)) + ": " + s.Message
	}
	return s
}

// problem is why a request is not answered.
type problem struct {
	code   code
	detail string
	// http status; 0: what the code has.
	http int
	// retry after so many seconds; 0: nothing is said.
	retry int
	// cause is for the log.
	cause error
}

func failure(c code, detail string) *problem { return &problem{code: c, detail: detail} }

// withStatus answers with a status of HTTP of its own.
func (p *problem) withStatus(http int) *problem {
	p.http = http
	return p
}

// after says when to ask again, in seconds.
func (p *problem) after(seconds int) *problem {
	p.retry = seconds
	return p
}

// withCause notes why.
func (p *problem) withCause(err error) *problem {
	p.cause = err
	return p
}

// envelope is what every answer in JSON begins with.
type envelope struct {
	HAPI   string `json:"HAPI"`
	Status status `json:"status"`
}

// refuse answers with a status. It does not repeat in it what a client sent.
func (h *Handler) refuse(w http.ResponseWriter, p *problem) {
	s := p.code.status()
	if p.detail != "" {
		s.Message += ": " + p.detail
	}
	code := p.http
	switch {
	case code != 0:
	case p.code == codeUnknownDataset || p.code == codeUnknownParameter:
		code = http.StatusNotFound
	case p.code >= codeInternal:
		code = http.StatusInternalServerError
	default:
		code = http.StatusBadRequest
	}
	if p.cause != nil {
		h.cfg.Log.Error("HAPI request", "status", p.code, "error", p.cause)
	}
	h.metrics.statuses.WithLabelValues(strconv.Itoa(int(p.code))).Inc()
	header := w.Header()
	if code == http.StatusUnauthorized {
		endpoint.Challenge(header)
	}
	if p.retry > 0 {
		header.Set("Retry-After", strconv.Itoa(p.retry))
	}
	header.Del("ETag")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(envelope{Version, s}) // the client may be gone
}
