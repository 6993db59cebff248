// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// identify identifies the client of a consumer's messages: the consumer itself, a named reader of
// the Site, or an anonymous reader, who shows no credentials. Another consumer is refused.
func (s *Server) identify(now *registry.Snapshot, consumer wire.ConsumerEntry, r *http.Request) (endpoint.Identity, *problem.Problem) {
	who, p := s.cfg.Admission.Identify(now, r)
	name, isConsumer := access.ConsumerOf(who.Reader.String())
	another := isConsumer && name != consumer.Consumer
	nobodys := p != nil && p.Status == http.StatusUnauthorized && r.Header.Get("Authorization") != ""
	if another || nobodys {
		return endpoint.Identity{}, problem.New(http.StatusUnauthorized,
			"the token is not that of FeedConsumer %s, nor of a reader of the Site: it is in the Secret of the FeedConsumer", consumer.Consumer)
	}
	return who, p
}
