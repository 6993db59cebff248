// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"crypto/sha256"
	"crypto/x509"
	"net/http"
	"slices"
	"sync"

	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// knownTokens is how many tokens are remembered: each token of the Site is hashed
// with a salt of its own, so the first look at one costs a hash for each of them.
const knownTokens = 4096

// Identity is an identified client, and the credentials that identify it.
type Identity struct {
	Reader access.Reader
	// Ambient: a browser shows it by itself, also for other sites' pages.
	Ambient bool
	// By is the hash of the token that was shown; zero if none was.
	By wire.TokenHash
	// Certificate that was shown without a token; nil if none was.
	Certificate *x509.Certificate
}

// Holds reports whether what was shown once stands for the same reader in a registry.
func (i Identity) Holds(s *registry.Snapshot) bool {
	switch {
	case i.Reader.Anonymous():
		return true
	case i.Certificate != nil:
		return certificate.Bears(i.Certificate, s.Readers[i.Reader.String()].CertificateNames)
	default:
		return slices.Contains(tokensOf(s, i.Reader), i.By)
	}
}

func tokensOf(s *registry.Snapshot, reader access.Reader) []wire.TokenHash {
	if consumer, is := access.ConsumerOf(reader.String()); is {
		return s.Consumers[consumer].Tokens
	}
	return s.Readers[reader.String()].Tokens
}

// Readers identify clients by the token or certificate of a request. The zero value is ready, and
// knows no certificates.
type Readers struct {
	// Certificates name the authorities that sign readers' certificates.
	Certificates *certificate.Files

	mu    sync.Mutex
	known map[[sha256.Size]byte]knownToken
}

// knownToken is a token that was shown, and whose it is.
type knownToken struct {
	Identity
	// snapshot of the registry in which it was last looked up.
	snapshot *registry.Snapshot
}

// Identify returns who asks: a named reader of the Site, a FeedConsumer, or an anonymous reader,
// who shows no credentials. An invalid token is refused even if none is needed: a client that shows
// one expects it to work. A token takes precedence over a certificate: clients show a certificate
// at each server that asks for one.
func (r *Readers) Identify(s *registry.Snapshot, request *http.Request) (Identity, *problem.Problem) {
	if request.Header.Get("Authorization") == "" {
		name, cert, refused := CertificateReader(r.Certificates, s, request)
		if cert == nil || refused != nil {
			return Identity{}, refused
		}
		return Identity{Reader: access.SiteReader(name), Ambient: true, Certificate: cert}, nil
	}
	secret, basic := Token(request)
	sum := sha256.Sum256([]byte(secret))
	who, ok := r.recall(s, sum)
	if ok {
		who.Ambient = basic
		return who, nil
	}
	if who, ok = match(s, secret); !ok {
		return Identity{}, problem.New(http.StatusUnauthorized,
			"the token is not that of a reader or FeedConsumer of this Site: show one as Authorization: Bearer …, or as the password")
	}
	r.remember(s, sum, who)
	who.Ambient = basic
	return who, nil
}

func match(s *registry.Snapshot, secret string) (Identity, bool) {
	matching := func(hashes []wire.TokenHash) (wire.TokenHash, bool) {
		for _, h := range hashes {
			if h.Matches(secret) {
				return h, true
			}
		}
		return wire.TokenHash{}, false
	}
	for name, entry := range s.Readers {
		if by, ok := matching(entry.Tokens); ok {
			return Identity{Reader: access.SiteReader(name), By: by}, true
		}
	}
	for name, entry := range s.Consumers {
		if by, ok := matching(entry.Tokens); ok {
			return Identity{Reader: s.Consumer(name), By: by}, true
		}
	}
	return Identity{}, false
}

// recall returns whose a token is that was shown before, if it still is that in a
// registry.
func (r *Readers) recall(s *registry.Snapshot, sum [sha256.Size]byte) (Identity, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, ok := r.known[sum]
	if !ok || k.snapshot == s {
		return k.Identity, ok
	}
	if !k.Holds(s) {
		delete(r.known, sum)
		return Identity{}, false
	}
	if consumer, is := access.ConsumerOf(k.Reader.String()); is {
		k.Reader = s.Consumer(consumer) // what it selects may be another
	}
	k.snapshot = s
	r.known[sum] = k
	return k.Identity, true
}

func (r *Readers) remember(s *registry.Snapshot, sum [sha256.Size]byte, who Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= knownTokens {
		r.known = make(map[[sha256.Size]byte]knownToken)
	}
	r.known[sum] = knownToken{who, s}
}
