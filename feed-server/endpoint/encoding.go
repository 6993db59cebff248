// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// CompressorCost is what one of NewCompressor takes, in bytes, as measured.
const CompressorCost = 3 << 20

// NewCompressor compresses a long answer, whose parts are alike: lists, and the headers of a tar.
func NewCompressor(out io.Writer) *zstd.Encoder {
	z, _ := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true)) // these options are no errors
	return z
}

// AcceptsGzip reports whether a client takes the content coding gzip (RFC 9110, section 12.5.3). A
// client without Accept-Encoding gets the plain content.
func AcceptsGzip(r *http.Request) bool {
	return quality(lines(r, "Accept-Encoding"), "gzip") > 0
}

// AcceptsZstd says the same of zstd (RFC 8878).
func AcceptsZstd(r *http.Request) bool { return quality(lines(r, "Accept-Encoding"), "zstd") > 0 }

// PrefersJSON reports whether a client takes JSON rather than HTML. One that takes both
// alike is a person's browser.
func PrefersJSON(r *http.Request) bool {
	accept := lines(r, "Accept")
	return quality(accept, "application/json") > quality(accept, "text/html")
}

// quality is the weight of a value in a list; 0 where the list does not name it, or
// forbids it.
func quality(list, value string) float64 {
	q, _ := weight(list, value)
	return q
}

// weight returns the weight of a value in a list (RFC 9110, section 12.4.2), and whether the list
// has it.
func weight(list, value string) (float64, bool) {
	for part := range strings.SplitSeq(list, ",") {
		name, parameters, _ := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(name), value) {
			continue
		}
		for parameter := range strings.SplitSeq(parameters, ";") {
			key, weight, _ := strings.Cut(strings.TrimSpace(parameter), "=")
			if !strings.EqualFold(key, "q") {
				continue
			}
			if q, err := strconv.ParseFloat(weight, 64); err == nil {
				return q, true
			}
		}
		return 1, true
	}
	return 0, false
}

// Accepted is the weight that the lines of an Accept header give a media type: the weight of the
// most specific range that matches it (RFC 9110, section 12.5.1). Without any line all are
// accepted.
func Accepted(lines []string, mediaType string) float64 {
	if len(lines) == 0 {
		return 1
	}
	list := strings.Join(lines, ",")
	mediaType, _, _ = strings.Cut(mediaType, ";")
	mediaType = strings.TrimSpace(mediaType)
	kind, _, _ := strings.Cut(mediaType, "/")
	for _, in := range []string{mediaType, kind + "/*", "*/*"} {
		if q, named := weight(list, in); named {
			return q
		}
	}
	return 0
}
