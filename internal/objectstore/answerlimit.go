// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

const (
	// maxAnswer bounds an answer that is no object, in bytes: a list has up to 1,000 keys of 1,024 bytes, and an encoded key has three
	// times as many. maxElements bounds the tags of its elements: a key of a list has up to 30, and minio-go takes half a KiB for each
	// key.
	maxAnswer   = 8 << 20
	maxElements = 100_000
)

// isObject says whether the answer to a request is an object, whose reader bounds it.
func isObject(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.RawQuery == "" }

// limitedAnswer is the body of an answer that minio-go keeps in memory.
type limitedAnswer struct {
	io.ReadCloser
	bytes, elements int
}

// Read implements io.Reader.
func (a *limitedAnswer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	a.bytes += n
	a.elements += bytes.Count(p[:n], []byte("<"))
	switch {
	case a.bytes > maxAnswer:
		return 0, fmt.Errorf("%w: its answer exceeds the limit of %d MiB", ErrNoS3, maxAnswer>>20)
	case a.elements > maxElements:
		return 0, fmt.Errorf("%w: its answer exceeds the limit of %d elements, and a list has up to 1000 keys", ErrNoS3, maxElements)
	}
	return n, err
}
