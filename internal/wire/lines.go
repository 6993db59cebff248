// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// lineWindow is how far back an encoder of lines looks for what repeats, in bytes: some hundred lines. Repetitions in manifests are that
// near: with the library's 8 MiB they are no smaller, and an encoder holds 18 MiB rather than 2.
const lineWindow = 256 << 10

// newLineEncoder returns an encoder of lines.
func newLineEncoder(w io.Writer) (*zstd.Encoder, error) {
	return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(lineWindow), zstd.WithLowerEncoderMem(true))
}

// lineEncoders are used again: each takes some MiB, and a thousand instruments close a
// thousand parts a minute.
var lineEncoders = sync.Pool{New: func() any {
	z, _ := newLineEncoder(nil) // its options are no error
	return z
}}

// encodeLines writes a header and entries as JSON lines, compressed with zstd.
func encodeLines[E any](header any, entries []E, escapeHTML bool) ([]byte, error) {
	var out bytes.Buffer
	z := lineEncoders.Get().(*zstd.Encoder)
	defer func() {
		z.Reset(nil) // it holds on to nothing
		lineEncoders.Put(z)
	}()
	z.Reset(&out)
	enc := json.NewEncoder(z)
	enc.SetEscapeHTML(escapeHTML)
	if err := enc.Encode(header); err != nil {
		return nil, err
	}
	for i := range entries {
		if err := enc.Encode(entries[i]); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// decodeLines calls read with what r unpacks to, at most limit bytes. The parameter what names
// the kind of file in errors; those of r say nothing about the file.
func decodeLines[F any](r io.Reader, what string, limit int64, read func(io.Reader) (F, error)) (F, error) {
	var none F
	source := &watchedReader{r: r}
	z, err := zstd.NewReader(source, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxManifestWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return none, fmt.Errorf("%s: %w", what, err)
	}
	defer z.Close()
	f, err := read(io.LimitReader(z, limit))
	if err != nil {
		return none, source.explain(err)
	}
	return f, nil
}

// decodeHeader reads the first line.
func decodeHeader[H any](lines *json.Decoder, what string) (H, error) {
	var first json.RawMessage
	if err := lines.Decode(&first); err != nil {
		var none H
		return none, fmt.Errorf("%s: it has no header: %w: %v", what, ErrMalformed, err)
	}
	return Decode[H](first)
}
