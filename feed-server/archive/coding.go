// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bufio"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/substorm/substorm/feed-server/endpoint"
)

const (
	// codedFrom is the size in bytes from which text is compressed: below, it takes as
	// many packets. Beyond verifiedBelow it is not, for that is not held in memory.
	codedFrom = 1 << 10
	// encoderMemory is what one encoder takes at most, with its buffer, in bytes.
	encoderMemory = 2 << 20
)

// encoder writes one content coding (RFC 9110, section 8.4.1) to a buffer of its own.
type encoder struct {
	coder interface {
		io.WriteCloser
		Reset(w io.Writer)
	}
	buffer *bufio.Writer
}

// encoders by the names of their codings.
var encoders = map[string]*sync.Pool{
	"gzip": {New: func() any {
		z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // there is such a level
		return &encoder{z, bufio.NewWriterSize(io.Discard, chunk)}
	}},
	"zstd": {New: func() any {
		z, _ := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
			zstd.WithWindowSize(256<<10), zstd.WithLowerEncoderMem(true)) // these options are no errors
		return &encoder{z, bufio.NewWriterSize(io.Discard, chunk)}
	}},
}

// encode writes all of an object in a coding.
func encode(out io.Writer, data []byte, coding string) error {
	e := encoders[coding].Get().(*encoder)
	defer encoders[coding].Put(e)
	defer e.buffer.Reset(io.Discard) // out is the client's
	e.buffer.Reset(out)
	e.coder.Reset(e.buffer)
	if _, err := e.coder.Write(data); err != nil {
		return err
	}
	if err := e.coder.Close(); err != nil {
		return err
	}
	return e.buffer.Flush()
}

// codingOf is the content coding in which an object is sent, empty: none. For text it depends on
// what the client accepts, and the header Vary is set. Ranges, and the digest that a client wants,
// are of the plain bytes.
func codingOf(r *http.Request, h http.Header, mediaType string, size int64) string {
	if size < codedFrom || size > verifiedBelow || !isText(mediaType) {
		return ""
	}
	h.Add("Vary", "Accept-Encoding")
	wants := r.Header.Values("Want-Repr-Digest")
	switch {
	case r.Header.Get("Range") != "", len(wants) > 0 && wantsSHA256(wants):
		return ""
	case endpoint.AcceptsZstd(r):
		return "zstd"
	case endpoint.AcceptsGzip(r):
		return "gzip"
	default:
		return ""
	}
}

// textTypes are the media types below application/ that are text, in addition to the types that end
// in +json or +xml.
var textTypes = []string{"json", "xml", "yaml", "csv", "javascript", "ndjson", "x-ndjson", "x-yaml"}

// isText reports whether a media type's objects are compressed: not those of types that are
// compressed already.
func isText(mediaType string) bool {
	kind, rest, _ := strings.Cut(mediaType, "/")
	if strings.EqualFold(kind, "text") {
		return true
	}
	subtype, _, _ := strings.Cut(strings.ToLower(rest), ";")
	subtype = strings.TrimSpace(subtype)
	return strings.HasSuffix(subtype, "+json") || strings.HasSuffix(subtype, "+xml") ||
		strings.EqualFold(kind, "application") && slices.Contains(textTypes, subtype)
}

// weak is an entity tag of what has the same meaning: encoders may write other bytes
// tomorrow.
func weak(tag string) string { return "W/" + tag }

// setCoding turns the headers of an object into the headers of its coded bytes: the object's digest
// is not their digest, and ranges of them are not served.
func setCoding(h http.Header, coding string) {
	h.Set("Content-Encoding", coding)
	h.Set("ETag", weak(h.Get("ETag")))
	h.Del("Repr-Digest")
	h.Del("Accept-Ranges")
}

// sendCoded sends all of an object in a coding; false: there is no memory to do so.
func (a *Archive) sendCoded(v *endpoint.Request, t target, data []byte, coding string) bool {
	if !a.hot.borrow(encoderMemory) {
		return false
	}
	defer a.hot.repay(encoderMemory)
	setCoding(v.W.Header(), coding)
	v.W.WriteHeader(http.StatusOK)
	v.Finish(t.String(), encode(endpoint.Paced{Request: v}, data, coding))
	return true
}
