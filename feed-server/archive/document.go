// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/substorm/substorm/feed-server/door"
	"github.com/substorm/substorm/internal/problem"
)

const (
	// documentsVersion is part of the entity tags of all documents: change it with
	// what they look like.
	documentsVersion = "1"
	// writeBuffer is how much of a document is written at a time.
	writeBuffer = 32 << 10
)

// document is what is made for who asks, as it is sent.
type document struct {
	mediaType string
	// cache is its Cache-Control; vary are the headers that it depends on, but for
	// Accept-Encoding.
	cache, vary string
	// source is what its bytes follow from.
	source []string
	write  func(w *bufio.Writer) error
}

// etag is a strong entity tag. Compressed bytes have another.
func (d *document) etag(compressed bool) string {
	h := sha256.New()
	for _, s := range append([]string{documentsVersion, d.mediaType}, d.source...) {
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

// serve answers with a document.
func (a *Archive) serve(v *door.Visit, t target, d document) *problem.Problem {
	compressed := door.AcceptsGzip(v.Request)
	tag := d.etag(compressed)
	h := v.W.Header()
	h.Set("ETag", tag)
	h.Set("Cache-Control", d.cache)
	h.Set("Vary", joined("Accept-Encoding", d.vary))
	switch door.Evaluate(v.Request, tag, time.Time{}) {
	case door.Unchanged:
		v.W.WriteHeader(http.StatusNotModified)
		return nil
	case door.Failed:
		return problem.New(http.StatusPreconditionFailed, "%s is another than the one that you mean: it has ETag %s", t, tag)
	}
	h.Set("Content-Type", d.mediaType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	if compressed {
		h.Set("Content-Encoding", "gzip")
	}
	v.W.WriteHeader(http.StatusOK)
	if v.Method != http.MethodHead {
		v.Finish(t.String(), d.send(door.Paced{Visit: v}, compressed))
	}
	return nil
}

func (d *document) send(out io.Writer, compressed bool) error {
	if !compressed {
		b := bufio.NewWriterSize(out, writeBuffer)
		if err := d.write(b); err != nil {
			return err
		}
		return b.Flush()
	}
	z := compressors.Get().(*gzip.Writer)
	defer compressors.Put(z)
	z.Reset(out)
	b := bufio.NewWriterSize(z, writeBuffer)
	if err := d.write(b); err != nil {
		return err
	}
	if err := b.Flush(); err != nil {
		return err
	}
	return z.Close()
}

func joined(a, b string) string {
	if b == "" {
		return a
	}
	return a + ", " + b
}
