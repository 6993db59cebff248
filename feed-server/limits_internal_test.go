// SPDX-License-Identifier: Apache-2.0

package feedserver

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
)

// TestLimits: the archive's clients may ask as often as the configured limit, and no more.
func TestLimits(t *testing.T) {
	t.Parallel()
	l := newEndpointsLab(t, func(c *Config) {
		c.Limits.Robot, c.Limits.Patience = endpoint.Rate{PerSecond: 0.0001, Burst: 4}, time.Nanosecond
	})
	answers := map[int]int{}
	var last string
	for range 6 {
		status, body := l.ask(http.MethodGet, "/robots.txt", outsider)
		answers[status]++
		last = body
	}
	if answers[http.StatusTooManyRequests] != 2 || !strings.Contains(last, "0.0001 requests a second here, 4 at once") {
		t.Errorf("answers %v, the last: %s", answers, last)
	}
}
