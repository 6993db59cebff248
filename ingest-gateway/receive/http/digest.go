// SPDX-License-Identifier: Apache-2.0

package http

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/substorm/substorm/internal/wire"
)

// digests are SHA-256s that a request says its object has, by header. Digests of the
// other algorithms of RFC 9530 are not computed, and nothing is said of them.
type digests map[string]wire.Digest

// algorithm is the key of SHA-256 in the headers of RFC 9530.
const algorithm = "sha-256"

// digestHeaders: what is sent is the representation, so both speak of the same bytes.
var digestHeaders = []string{"Repr-Digest", "Content-Digest"}

// digestsOf reads the digests of a header. Errors name what is wrong.
func digestsOf(h http.Header) (digests, error) {
	all := digests{}
	for _, name := range digestHeaders {
		lines := h.Values(name)
		if len(lines) == 0 {
			continue
		}
		d, found, err := parseDigest(lines)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if found {
			all[name] = d
		}
	}
	return all, nil
}

// parseDigest reads a dictionary of digests (RFC 9530, section 2). Digests of other
// algorithms are left alone; what is no digest at all is an error: its sender believes
// that it is compared.
func parseDigest(lines []string) (d wire.Digest, found bool, err error) {
	dictionary, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil {
		return d, false, fmt.Errorf("%.200q is not a dictionary such as sha-256=:<base64>: (RFC 9530): %v", strings.Join(lines, ", "), err)
	}
	for _, name := range dictionary.Names() {
		member, _ := dictionary.Get(name)
		item, _ := member.(httpsfv.Item)
		if _, ok := item.Value.([]byte); !ok {
			return d, false, fmt.Errorf("%.200q: %.40s has no digest, such as sha-256=:<base64>: (RFC 9530)", strings.Join(lines, ", "), name)
		}
	}
	member, found := dictionary.Get(algorithm)
	if !found {
		return d, false, nil
	}
	item, _ := member.(httpsfv.Item)
	bytes, ok := item.Value.([]byte)
	if !ok || len(bytes) != len(d) {
		return d, false, fmt.Errorf("%s is not :<base64 of 32 bytes>:", algorithm)
	}
	return wire.Digest(bytes), true, nil
}

// addTrailer adds what came behind the body.
func (d digests) addTrailer(h http.Header) error {
	more, err := digestsOf(h)
	for name, digest := range more {
		d[name+" (trailer)"] = digest
	}
	return err
}

// check returns an error where a digest is another.
func (d digests) check(arrived wire.Digest) error {
	for name, said := range d {
		if said != arrived {
			return fmt.Errorf("%s says sha-256 %s, and the bytes that arrived have %s", name, said, arrived)
		}
	}
	return nil
}

// sha256 returns the digest, where all headers say the same one.
func (d digests) sha256() (digest wire.Digest, said bool) {
	for _, one := range d {
		if said && one != digest {
			return wire.Digest{}, false
		}
		digest, said = one, true
	}
	return digest, said
}
