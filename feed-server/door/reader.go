// SPDX-License-Identifier: Apache-2.0

package door

import (
	"crypto/sha256"
	"net/http"
	"slices"
	"sync"

	"github.com/substorm/substorm/feed-server/registry"
	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

// knownTokens is how many tokens are remembered: each token of the Site is hashed
// with a salt of its own, so the first look at one costs a hash for each of them.
const knownTokens = 4096

// Readers tell who asks by the token or certificate that a request shows. The zero
// value is ready, and knows no certificates.
type Readers struct {
	// Certificates say which authorities sign those of readers.
	Certificates *certificate.Files

	mu sync.Mutex
	// snapshot that known was found in.
	snapshot *registry.Snapshot
	known    map[[sha256.Size]byte]access.Reader
}

// Identify says who asks: a named reader of the Site, a FeedConsumer, or a
// stranger, who shows nothing. A token that is nobody's is refused, also where
// none is needed: who shows one believes in it.
func (r *Readers) Identify(s *registry.Snapshot, request *http.Request) (access.Reader, *problem.Problem) {
	if request.Header.Get("Authorization") == "" {
		name, _, refused := CertificateReader(r.Certificates, s, request)
		return access.Reader{Name: name}, refused
	}
	secret, _ := Token(request)
	sum := sha256.Sum256([]byte(secret))
	if reader, ok := r.recall(s, sum); ok {
		return reader, nil
	}
	reader, ok := match(s, secret)
	if !ok {
		return access.Reader{}, problem.New(http.StatusUnauthorized,
			"the token is not that of a reader or FeedConsumer of this Site: show one as Authorization: Bearer …, or as the password")
	}
	r.remember(s, sum, reader)
	return reader, nil
}

func match(s *registry.Snapshot, secret string) (access.Reader, bool) {
	matches := func(h wire.TokenHash) bool { return h.Matches(secret) }
	for name, entry := range s.Readers {
		if slices.ContainsFunc(entry.Tokens, matches) {
			return access.Reader{Name: name}, true
		}
	}
	for name, entry := range s.Consumers {
		if slices.ContainsFunc(entry.Tokens, matches) {
			return access.Reader{Name: name}, true
		}
	}
	return access.Reader{}, false
}

func (r *Readers) recall(s *registry.Snapshot, sum [sha256.Size]byte) (access.Reader, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.snapshot != s {
		return access.Reader{}, false
	}
	reader, ok := r.known[sum]
	return reader, ok
}

func (r *Readers) remember(s *registry.Snapshot, sum [sha256.Size]byte, reader access.Reader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.snapshot != s || len(r.known) >= knownTokens {
		r.snapshot, r.known = s, make(map[[sha256.Size]byte]access.Reader)
	}
	r.known[sum] = reader
}
