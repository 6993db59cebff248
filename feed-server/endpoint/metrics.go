// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"cmp"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
)

type metrics struct {
	requests *prometheus.CounterVec
	bytes    *prometheus.CounterVec
	slow     *prometheus.CounterVec
	damaged  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	return &metrics{
		requests: metric.Counters(reg, "substorm_archive_requests_total",
			"Requests to the archive, by class of client and status of HTTP.", "class", "status"),
		bytes: metric.Counters(reg, "substorm_archive_bytes_total", "Bytes of content that the archive sent, by class of client.", "class"),
		slow: metric.Counters(reg, "substorm_archive_slow_total",
			"Answers that were cut off because their client took less than 64 KiB in 30 s (15 s while others waited for their turn), by class of client.", "class"),
		damaged: metric.Counter(reg, "substorm_archive_damaged_total",
			"Requests for an object whose bytes in the store are not those that were received, or are gone."),
	}
}

// count is the end of a request.
func (v *Request) count() {
	m, class := v.check.metrics, v.class.String()
	m.requests.WithLabelValues(class, strconv.Itoa(v.sent.status)).Inc()
	m.bytes.WithLabelValues(class).Add(float64(v.sent.bytes))
	for instrument, bytes := range v.shares {
		v.countOf(instrument, bytes)
	}
	if len(v.shares) == 0 {
		v.countOf(v.about, v.sent.bytes)
	}
}

// countOf counts what was sent of an instrument.
func (v *Request) countOf(instrument string, bytes int64) {
	v.logAccess(instrument, bytes)
	if v.check.cfg.Count != nil {
		v.check.cfg.Count(instrument, v.Reader.String(), v.class, v.sent.status, bytes)
	}
}

// counter sees what a client is answered.
type counter struct {
	http.ResponseWriter
	status int
	bytes  int64
	// traffic counts what all answers amount to.
	traffic *Traffic
}

func (c *counter) WriteHeader(status int) {
	c.status = cmp.Or(c.status, status)
	c.ResponseWriter.WriteHeader(status)
}

func (c *counter) Write(p []byte) (int, error) {
	c.status = cmp.Or(c.status, http.StatusOK)
	n, err := c.ResponseWriter.Write(p)
	c.bytes += int64(n)
	c.traffic.sent.Add(uint64(n))
	return n, err
}

// Unwrap is for http.ResponseController.
func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
