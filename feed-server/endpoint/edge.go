// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/substorm/substorm/internal/metric"
)

// edge detects proxies that are not configured as trusted: all their clients look like one, and
// share the limits of one address.
type edge struct {
	proxies Proxies
	log     *slog.Logger
	lines   *rate.Limiter
	counter prometheus.Counter
}

// edgePause is how long nothing is said again.
const edgePause = time.Hour

func newEdge(proxies Proxies, log *slog.Logger, metrics prometheus.Registerer) *edge {
	return &edge{
		proxies: proxies, log: log, lines: rate.NewLimiter(rate.Every(edgePause), 1),
		counter: metric.Counter(metrics, "substorm_feed_forwarded_not_believed_total",
			"Requests with X-Forwarded-For that came from an address which is not among the proxies: all clients of such a proxy count as one."),
	}
}

func (e *edge) look(r *http.Request) {
	if len(r.Header["X-Forwarded-For"]) == 0 || e.proxies.Trusted(r) {
		return
	}
	e.counter.Inc()
	if e.lines.Allow() {
		e.log.Warn("ignoring X-Forwarded-For from an address that is not trusted: if it is your proxy, name it in spec.proxies of the FeedServer (--proxies), "+
			"or all its clients share the limits of one address; if it is not, a client made the header up", "address", remoteOf(r.RemoteAddr))
	}
}
