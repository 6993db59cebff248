// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"encoding/binary"
	"errors"
	"mime"
	"regexp"
	"slices"
	"strings"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/internal/wire"
)

var (
	errHTTP = errors.New("an HTTP request came to a port of raw TCP, and would have become an object: send it to a listener with protocol HTTP, on a port of its own")
	errTLS  = errors.New("a TLS hello came to a port of plain TCP: set tcp.tls of the listener, or send without TLS")
)

// recognizer reads a connection's first bytes, and ends it if they come from a client that takes the port
// for one of HTTP or TLS. It looks at no more than maxFirstLine bytes, and only at the beginning of a
// connection: within one the protocol does not change.
type recognizer struct {
	transport
	// head is what came first, until it is known to be an instrument's; nil from then on.
	head []byte
	// found is what the bytes are instead; nil for an instrument's.
	found error
}

// maxFirstLine is how much of a request's first line is looked at.
const maxFirstLine = 1024

// recognize puts a recognizer on a transport, unless its instrument may send such bytes: it
// declares a media type of HTTP messages, or a magic number that they begin with.
func recognize(t transport, listener *intake.Listener) transport {
	mediaType, _, _ := mime.ParseMediaType(listener.Instrument.MediaType)
	e := listener.Expect
	if strings.HasSuffix(mediaType, "/http") || e != nil && len(e.Magic) > 0 && (declaresHTTP(e.Magic) || beginsTLS(e.Magic)) {
		return t
	}
	return &recognizer{transport: t, head: make([]byte, 0, len(hello{}))}
}

func (r *recognizer) read(into []byte) (int, error) {
	if r.found != nil {
		return 0, r.refusal()
	}
	n, err := r.transport.read(into)
	if r.see(into[:max(n, 0)]); r.found != nil {
		return 0, r.refusal()
	}
	return n, err
}

func (r *recognizer) readAhead(space, ahead []byte) (n, m int, err error) {
	if r.found != nil {
		return 0, 0, r.refusal()
	}
	n, m, err = r.transport.readAhead(space, ahead)
	r.see(space[:n])
	r.see(ahead[:m])
	if r.found != nil {
		return 0, 0, r.refusal()
	}
	return n, m, err
}

func (r *recognizer) readNow(into []byte) int {
	if r.found != nil {
		return -1 // the next read returns the reason
	}
	n := r.transport.readNow(into)
	if n > 0 && len(into) > 0 {
		r.see(into[:n])
	}
	return n
}

func (r *recognizer) refusal() error { return &cut{wire.CauseWrongProtocol, r.found} }

// see looks at bytes that came.
func (r *recognizer) see(b []byte) {
	if r.head == nil || len(b) == 0 {
		return
	}
	r.head = append(r.head, b[:min(len(b), maxFirstLine-len(r.head))]...)
	switch {
	case isHTTP(r.head):
		r.found = errHTTP
	case isTLS(r.head):
		r.found = errTLS
	case len(r.head) == maxFirstLine && longTarget.Match(r.head):
		r.found = errHTTP
	case len(r.head) < maxFirstLine && (beginsHTTP(r.head) || beginsTLS(r.head) && len(r.head) < len(hello{})):
		return
	}
	r.head = nil
}

// method is a request's, behind the empty lines that servers overlook (RFC 9112, 2.2). Clients that a person wrote spell it in
// lower case, and leave blanks and letters of other languages in the target.
const method = `^(?:\r?\n)*[A-Za-z-]{3,32} `

// requestLine is a request's first line, or the preface of HTTP/2.
var requestLine = regexp.MustCompile(method + `[^\x00-\x1f\x7f]+ (?i:HTTP)/[0-9](?:\.[0-9])? *\r?\n`)

// longTarget is the beginning of a first line that is longer than maxFirstLine, as a web page can have a browser send it. One with blanks
// may be a text.
var longTarget = regexp.MustCompile(method + `(?:/|https?://)[^\x00-\x20\x7f]*$`)

// requestBegins is what a request may begin with.
var requestBegins = regexp.MustCompile(`^(?:\r?\n)*(?:\r|[A-Za-z-]{0,32}|[A-Za-z-]{3,32} [^\x00-\x1f\x7f]*\r?)$`)

func isHTTP(head []byte) bool { return requestLine.Match(head) }

// methods are the methods of requests that come by mistake: of browsers, uploaders, scanners.
var methods = []string{"GET ", "HEAD ", "POST ", "PUT ", "PATCH ", "DELETE ", "OPTIONS ", "CONNECT ", "TRACE ", "MKCOL ", "PROPFIND ", "PRI "}

// declaresHTTP says whether objects that begin with a magic number may be requests.
func declaresHTTP(magic []byte) bool {
	return slices.ContainsFunc(methods, func(m string) bool { n := min(len(m), len(magic)); return string(magic[:n]) == m[:n] })
}

// beginsHTTP says whether more bytes could make a request of it.
func beginsHTTP(head []byte) bool { return requestBegins.Match(head) }

// hello is how a ClientHello begins (RFC 8446, 4.1.2 and 5.1): the record's type, version and
// length, then the message's type, length and version.
type hello [11]byte

// isTLS wants all of it, so that a number, or a picture, that begins with the same bytes is none: the
// lengths must fit each other.
func isTLS(head []byte) bool {
	if len(head) < len(hello{}) || !beginsTLS(head) {
		return false
	}
	record, message := int(binary.BigEndian.Uint16(head[3:])), int(head[6])<<16|int(binary.BigEndian.Uint16(head[7:]))
	const messageHeader, maxRecord = 4, 1 << 14
	return record > messageHeader && record <= maxRecord && message+messageHeader >= record
}

// beginsTLS says whether more bytes could make a ClientHello of it.
func beginsTLS(head []byte) bool {
	for i, b := range head[:min(len(head), len(hello{}))] {
		ok := true
		switch i {
		case 0:
			ok = b == 22 // a handshake
		case 1, 9:
			ok = b == 3 // SSL 3.0 to TLS 1.3
		case 2, 10:
			ok = b <= 4
		case 5:
			ok = b == 1 // ClientHello
		}
		if !ok {
			return false
		}
	}
	return true
}
