// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"crypto/x509"
	"net/http"
	"slices"

	"github.com/substorm/substorm/feed-server/door"
	"github.com/substorm/substorm/feed-server/registry"
	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

// identity is who asks, and by what that is known.
type identity struct {
	reader access.Reader
	// ambient: a browser shows it by itself, also for other sites' pages.
	ambient bool
	// by is the hash of the token that was shown; zero where none was.
	by wire.TokenHash
	// certificate that was shown, where no token was; nil where none was.
	certificate *x509.Certificate
}

// identify says who asks for a consumer's messages: the consumer itself, a named
// reader of the Site, or a stranger, who shows nothing. A token goes before a
// certificate: clients show that at each server that asks.
func (s *Server) identify(now *registry.Snapshot, consumer wire.ConsumerEntry, r *http.Request) (identity, *problem.Problem) {
	if r.Header.Get("Authorization") != "" {
		return byToken(now, consumer, r)
	}
	name, cert, refused := door.CertificateReader(s.cfg.Certificates, now, r)
	return identity{reader: access.Reader{Name: name}, ambient: cert != nil, certificate: cert}, refused
}

func byToken(s *registry.Snapshot, consumer wire.ConsumerEntry, r *http.Request) (identity, *problem.Problem) {
	secret, basic := door.Token(r)
	if by, ok := match(consumer.Tokens, secret); ok {
		return identity{reader: access.Reader{Name: consumer.Consumer}, ambient: basic, by: by}, nil
	}
	for name, reader := range s.Readers {
		if by, ok := match(reader.Tokens, secret); ok {
			return identity{reader: access.Reader{Name: name}, ambient: basic, by: by}, nil
		}
	}
	return identity{}, problem.New(http.StatusUnauthorized,
		"the token is not that of FeedConsumer %s, nor of a reader of the Site: it is in the Secret of the FeedConsumer", consumer.Consumer)
}

func match(hashes []wire.TokenHash, secret string) (wire.TokenHash, bool) {
	i := slices.IndexFunc(hashes, func(h wire.TokenHash) bool { return h.Matches(secret) })
	if i < 0 {
		return wire.TokenHash{}, false
	}
	return hashes[i], true
}

// known says whether who was identified once would be again.
func (i identity) known(s *registry.Snapshot, consumer wire.ConsumerEntry) bool {
	if i.certificate != nil {
		return certificate.Bears(i.certificate, s.Readers[i.reader.Name].CertificateNames)
	}
	if i.reader.Name == "" || i.by == (wire.TokenHash{}) { // a stranger, or by a ticket
		_, named := s.Readers[i.reader.Name]
		return i.reader.Name == "" || i.reader.Name == consumer.Consumer || named
	}
	return slices.Contains(consumer.Tokens, i.by) && i.reader.Name == consumer.Consumer ||
		slices.Contains(s.Readers[i.reader.Name].Tokens, i.by)
}
