// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/substorm/substorm/internal/problem"
)

const (
	// documentsVersion is part of the entity tags of all documents: change it with
	// what any of them looks like.
	documentsVersion = "1"
	// writeBuffer is how much of a document is written at a time.
	writeBuffer = 32 << 10
)

// Document is what is made for the client, as it is sent.
type Document struct {
	MediaType string
	// Cache is its Cache-Control; Vary are the headers that it depends on, but for
	// Accept-Encoding.
	Cache, Vary string
	// Policy is its Content-Security-Policy; empty: it has styles of its own, and nothing else.
	Policy string
	// Source is what its bytes follow from: its entity tag is made of that.
	Source []string
	Write  func(w *bufio.Writer) error
}

// etag is a strong entity tag. Compressed bytes have another.
func (d *Document) etag(compressed bool) string {
	h := sha256.New()
	for _, s := range append([]string{documentsVersion, d.MediaType}, d.Source...) {
		_, _ = io.WriteString(h, s)
		_, _ = h.Write([]byte{0})
	}
	tag := hex.EncodeToString(h.Sum(nil)[:16])
	if compressed {
		tag += "-gzip"
	}
	return `"` + tag + `"`
}

var compressors = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // there is such a level
	return z
}}

// Serve answers with a document. The parameter what names it in a refusal.
func (v *Request) Serve(what string, d Document) *problem.Problem {
	compressed := AcceptsGzip(v.Request)
	tag := d.etag(compressed)
	h := v.W.Header()
	h.Set("ETag", tag)
	h.Set("Cache-Control", d.Cache)
	h.Set("Vary", Joined("Accept-Encoding", d.Vary))
	switch Evaluate(v.Request, tag, time.Time{}) {
	case Unchanged:
		v.W.WriteHeader(http.StatusNotModified)
		return nil
	case Failed:
		return problem.New(http.StatusPreconditionFailed, "%s is another than the one that you mean: it has ETag %s", what, tag)
	}
	h.Set("Content-Type", d.MediaType)
	h.Set("Content-Security-Policy", cmp.Or(d.Policy, "default-src 'none'; style-src 'unsafe-inline'"))
	if compressed {
		h.Set("Content-Encoding", "gzip")
	}
	v.W.WriteHeader(http.StatusOK)
	if v.Method != http.MethodHead {
		v.Finish(what, d.send(Paced{v}, compressed))
	}
	return nil
}

func (d *Document) send(out io.Writer, compressed bool) error {
	if !compressed {
		b := bufio.NewWriterSize(out, writeBuffer)
		if err := d.Write(b); err != nil {
			return err
		}
		return b.Flush()
	}
	z := compressors.Get().(*gzip.Writer)
	defer compressors.Put(z)
	z.Reset(out)
	b := bufio.NewWriterSize(z, writeBuffer)
	if err := d.Write(b); err != nil {
		return err
	}
	if err := b.Flush(); err != nil {
		return err
	}
	return z.Close()
}

// Joined is two lists of a header as one; b may be empty.
func Joined(a, b string) string {
	if b == "" {
		return a
	}
	return a + ", " + b
}
