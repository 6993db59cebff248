// SPDX-License-Identifier: Apache-2.0

package http

import (
	"crypto/sha1" //nolint:gosec // the protocol names it, against errors of transport
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"net/http"
	"slices"
	"strings"

	"github.com/substorm/substorm/internal/wire"
)

// statusChecksumMismatch is the status of the tus extension checksum.
const statusChecksumMismatch = 460

// algorithms are the algorithms of Upload-Checksum.
var algorithms = map[string]func() hash.Hash{"sha1": sha1.New, "sha256": sha256.New}

// checksum is what a header says of the bytes of a request, and what these have.
type checksum struct {
	hash.Hash
	header string
	want   []byte
	// status answers where it is another.
	status int
}

func (c *checksum) isWrong() bool { return !slices.Equal(c.Sum(nil), c.want) }

// checksums returns what is said of a request's bytes, and of the object that they
// complete; nil where that is not said. A checksum behind the body comes too late: the
// bytes follow the others then.
func (q *request) checksums() (sums []*checksum, object *wire.Digest, err error) {
	if header := q.r.Header.Get("Upload-Checksum"); header != "" {
		algorithm, coded, _ := strings.Cut(header, " ")
		make, known := algorithms[algorithm]
		want, err := base64.StdEncoding.DecodeString(coded)
		if !known || err != nil {
			return nil, nil, fmt.Errorf("Upload-Checksum %.100q must be sha1 or sha256, and the checksum in base64", header)
		}
		sums = append(sums, &checksum{make(), "Upload-Checksum", want, statusChecksumMismatch})
	}
	for _, name := range digestHeaders {
		if _, later := q.r.Trailer[name]; later {
			return nil, nil, fmt.Errorf("Trailer: send %s as a header, before the bytes of the upload", name)
		}
	}
	said, err := digestsOf(q.r.Header)
	if d, found := said["Content-Digest"]; found {
		sums = append(sums, &checksum{sha256.New(), "Content-Digest", d[:], http.StatusBadRequest})
	}
	if d, found := said["Repr-Digest"]; found {
		object = &d
	}
	return sums, object, err
}
