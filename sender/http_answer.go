// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

func digestOf(data []byte) wire.Digest { return sha256.Sum256(data) }

// countingReader counts what is read of a request's body. It may be read on by
// net/http after the request has ended.
type countingReader struct {
	from io.Reader
	read atomic.Int64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	c.read.Add(int64(n))
	return n, err
}

// judge interprets an answer: a successful answer is a receipt only if it has the object's digest.
func (t *transfer) judge(a answer, err error) verdict {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return verdict{err: fmt.Errorf("no answer within %v", t.sender.receiptTimeout)}
	case err != nil:
		return verdict{err: err}
	case a.status != http.StatusOK && a.status != http.StatusCreated && a.status != http.StatusNoContent:
		return refusal(a)
	}
	digest, found := digestIn(a.header)
	switch {
	case !found:
		return verdict{err: fmt.Errorf("the server answers %d without a digest, which is not a receipt: is it a gateway?", a.status)}
	case digest != t.digest:
		return verdict{err: fmt.Errorf("the receipt is for other bytes: sha-256=%s, sent %s", digest, t.digest)}
	}
	return verdict{receipted: true, digest: digest, bytes: t.size}
}

// digestIn reads the SHA-256 of Repr-Digest (RFC 9530).
func digestIn(h http.Header) (d wire.Digest, found bool) {
	for part := range strings.SplitSeq(strings.Join(h.Values("Repr-Digest"), ","), ",") {
		coded, ok := strings.CutPrefix(strings.TrimSpace(part), "sha-256=:")
		data, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(coded, ":"))
		if ok && err == nil && len(data) == len(d) {
			return wire.Digest(data), true
		}
	}
	return d, false
}

// refusal is an answer that says why the object is not taken: a document of RFC 9457 with the
// gateway's cause, or an answer of another server on the way.
func refusal(a answer) verdict {
	v := verdict{wait: retryAfter(a, time.Now()), advised: true}
	var problem struct {
		Detail string     `json:"detail"`
		Cause  wire.Cause `json:"cause"`
	}
	mediaType, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	if mediaType != "application/problem+json" || json.Unmarshal(a.body, &problem) != nil || problem.Cause == "" {
		v.err = fmt.Errorf("the server answers %d %s: is it a gateway?", a.status, http.StatusText(a.status))
		return v
	}
	v.refused, v.err = problem.Cause, fmt.Errorf("refused %s: %.500s", problem.Cause, problem.Detail)
	return v
}

// maxRetryAfter bounds how long a server may ask to be left alone.
const maxRetryAfter = 10 * time.Minute

// retryAfter reads the header of 429 and 503 (RFC 9110, section 10.2.3): seconds, or a date.
func retryAfter(a answer, now time.Time) time.Duration {
	if a.status != http.StatusTooManyRequests && a.status != http.StatusServiceUnavailable {
		return 0
	}
	said := a.header.Get("Retry-After")
	if seconds, err := strconv.Atoi(said); err == nil {
		return min(max(0, time.Duration(min(seconds, 1e6))*time.Second), maxRetryAfter)
	}
	if at, err := http.ParseTime(said); err == nil {
		return min(max(0, at.Sub(now)), maxRetryAfter)
	}
	return 0
}
