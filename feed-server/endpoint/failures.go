// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"container/list"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/problem"
)

// guessLines bounds the log lines about failures: the rest is counted.
var guessLines = Rate{PerSecond: 1, Burst: 20}

// failures slow down clients that fail to authenticate: an address that failed too often gets its
// answer late. The next try of a client that waits for its answer comes that much later.
type failures struct {
	allowed Rate
	// hold is how long an answer is held back at most, and held are the answers that are held back.
	hold    time.Duration
	held    *Places
	proxies Proxies
	log     *slog.Logger
	lines   *rate.Limiter
	untold  atomic.Int64
	counter prometheus.Counter
	rates
}

func newFailures(limits Limits, cfg AdmissionConfig) *failures {
	return &failures{
		allowed: limits.Failures, hold: limits.Patience, held: NewPlaces(limits.Waiting, podFull), proxies: cfg.Proxies, log: cfg.Logger,
		lines: rate.NewLimiter(rate.Limit(guessLines.PerSecond), guessLines.Burst), rates: rates{most: limits.Clients, clients: map[client]*list.Element{}},
		counter: metric.Counter(cfg.Metrics, "substorm_feed_authentication_failed_total",
			"Requests that showed a token, ticket or certificate that is nobody's."),
	}
}

// tooMany reports whether an address failed so often that another failure now exceeds its limit.
func (f *failures) tooMany(address netip.Addr) bool {
	for _, l := range f.limits(address) {
		if l.Tokens() < 1 {
			return true
		}
	}
	return false
}

// limits are the limits of an address, and of its network.
func (f *failures) limits(address netip.Addr) []*rate.Limiter {
	all := []*rate.Limiter{f.of(client{address: address}, f.allowed)}
	if network := (client{address: address}).network(); network.wide {
		all = append(all, f.of(network, f.allowed.times(networkShare)))
	}
	return all
}

// recordFailure counts that an address showed invalid credentials, and logs it without them. It returns
// the answer: the problem or, if the address failed too often, after a delay, that the client has
// to wait.
func (f *failures) recordFailure(address netip.Addr, r *http.Request, p *problem.Problem) *problem.Problem {
	f.tell(address, r, p)
	var wait time.Duration
	for _, l := range f.limits(address) {
		if !l.AllowN(time.Now(), 1) {
			wait = time.Duration((1 - l.Tokens()) / float64(l.Limit()) * float64(time.Second))
			break // an address that fails too often takes nothing from its network
		}
	}
	if wait == 0 {
		return p
	}
	f.holdBack(address, r, min(wait, f.hold))
	return problem.New(http.StatusTooManyRequests, "your address showed tokens, tickets or certificates that are nobody's too often: wait").
		After(int(wait/time.Second) + 1)
}

// holdBack waits as long as an answer is held back. If the max number of answers is held back
// already, it ends the client's connection instead: the next try needs another.
func (f *failures) holdBack(address netip.Addr, r *http.Request, wait time.Duration) {
	leave, full := f.held.Enter(address, Identity{})
	if full != nil {
		if c := ConnectionOf(r); c != nil && !f.proxies.trust(remoteOf(r.RemoteAddr)) { // a proxy's is one of many clients
			abort(c)
		}
		return
	}
	defer leave()
	over := time.NewTimer(wait)
	defer over.Stop()
	select {
	case <-over.C:
	case <-r.Context().Done():
	}
}

func (f *failures) tell(address netip.Addr, r *http.Request, p *problem.Problem) {
	f.counter.Inc()
	if !f.lines.Allow() {
		f.untold.Add(1)
		return
	}
	f.log.Warn("authentication failed", "address", address, "remote", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "why", p.Detail, "notLogged", f.untold.Swap(0))
}
