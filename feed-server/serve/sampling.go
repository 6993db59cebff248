// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http"

	"github.com/substorm/substorm/internal/problem"
)

// samplingRate bounds what each replica takes of a FeedConsumer that asks for rates of
// observations, in a second, and samplingBurst at once: each is written to all replicas
// of a bucket. Renewed each minute, that is enough for a thousand rates.
const (
	samplingRate  = 20
	samplingBurst = 100
)

// serveSampling answers what asks for a rate of observations.
func (s *Server) serveSampling(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Origin", "*") // the token is shown by the page itself
	a, p := s.authorize(r, "")
	if p == nil {
		p = s.mayAskForRates(a, r)
	}
	if p != nil {
		s.refuse(w, r, p)
		return
	}
	s.cfg.Sampling(w, r, a.selection.Consumer.Consumer, func(instrument string) bool {
		_, ok := a.filter.Instruments[instrument]
		return ok
	})
}

// mayAskForRates returns the reason why the client may not ask for rates now; nil: it may.
func (s *Server) mayAskForRates(a asked, r *http.Request) *problem.Problem {
	consumer := a.selection.Consumer
	switch {
	case a.who.Reader.Anonymous():
		return problem.New(http.StatusUnauthorized, "show the token of FeedConsumer %s: anonymous readers ask for nothing", consumer.Consumer)
	case !a.who.Reader.Is(a.selection.Reader()):
		return problem.New(http.StatusForbidden, "%s reads FeedConsumer %s, whose requests are its own: show its token, which is in its Secret",
			a.who.Reader, consumer.Consumer)
	case a.who.Ambient && r.Header.Get("Origin") != "":
		return problem.New(http.StatusForbidden, "pages ask with a bearer token: a password that a browser keeps goes out for any site's page")
	case !s.asking.may(consumer.Consumer):
		return problem.New(http.StatusTooManyRequests, "FeedConsumer %s asked %d times a second here, as often as it may", consumer.Consumer, samplingRate).After(retrySoon)
	default:
		return nil
	}
}
