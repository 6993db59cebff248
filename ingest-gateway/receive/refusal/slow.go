// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// failureBurst failures of an address are answered at once, then one a second.
	failureBurst = 10
	// maxDelay bounds how long an answer is held back. It is less than a request may
	// take until its body is read.
	maxDelay = 5 * time.Second
	// maxAddresses are remembered.
	maxAddresses = 4096
	// network6 is what is one address of IPv6: what a provider gives to one customer.
	network6 = 64
	// site6 is what a provider gives to one customer at most (RFC 6177); it may fail siteShare times as often as one address.
	site6, siteShare = 48, 4
)

// Slow holds answers back from addresses whose authentication fails again and again: trying tokens,
// or certificates, becomes slow. Other answers to the same address, and other addresses, are not
// held back. Its methods may be called from many goroutines.
type Slow struct {
	delayed *prometheus.CounterVec

	mu   sync.Mutex
	from map[netip.Prefix]*rate.Limiter
}

// NewSlow returns a Slow that knows no address.
func NewSlow(reg prometheus.Registerer) *Slow {
	return &Slow{from: map[netip.Prefix]*rate.Limiter{}, delayed: metric.Counters(reg, "substorm_gateway_authentication_delayed_total",
		"Refusals of tokens and certificates that were held back, since their address had many, by cause.", "cause")}
}

// Hold returns when a refusal may be answered: at once unless it is of a failed authentication. It
// returns early when ctx ends.
func (s *Slow) Hold(ctx context.Context, cause wire.Cause, addr netip.Addr) {
	if cause != wire.CauseBadToken && cause != wire.CauseBadCertificate {
		return
	}
	delay := s.delay(time.Now(), addr)
	if delay <= 0 {
		return
	}
	s.delayed.WithLabelValues(string(cause)).Inc()
	retry.Sleep(ctx, delay)
}

// delay notes a failure, and returns how long its answer is held back: as long as its address owes or, of IPv6, as long as its
// site owes.
func (s *Slow) delay(now time.Time, addr netip.Addr) time.Duration {
	if !addr.IsValid() {
		return maxDelay
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !addr.Is6() {
		return s.owes(now, addr, addr.BitLen(), 1)
	}
	return max(s.owes(now, addr, network6, 1), s.owes(now, addr, site6, siteShare))
}

// owes notes a failure of a network that is allowed a number of times what one address is, and returns how long its answer is held
// back. The mutex is held.
func (s *Slow) owes(now time.Time, addr netip.Addr, bits, times int) time.Duration {
	from, _ := addr.WithZone("").Prefix(bits) // bits are the address's, or fewer
	l := s.from[from]
	if l == nil {
		s.makeSpace(now)
		l = rate.NewLimiter(rate.Limit(times), times*failureBurst)
		s.from[from] = l
	}
	r := l.ReserveN(now, 1)
	delay := r.DelayFrom(now)
	if delay > maxDelay {
		r.CancelAt(now) // what is owed does not grow without end
		delay = maxDelay
	}
	return delay
}

// makeSpace forgets addresses that owe nothing, and all if that leaves no space. The mutex is held.
func (s *Slow) makeSpace(now time.Time) {
	if len(s.from) < maxAddresses {
		return
	}
	for from, l := range s.from {
		if l.TokensAt(now) >= float64(l.Burst()) {
			delete(s.from, from)
		}
	}
	if len(s.from) >= maxAddresses {
		clear(s.from)
	}
}
