// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/substorm/substorm/internal/build"
	"github.com/substorm/substorm/internal/egress"
)

const (
	// maxBody is four times the largest product that is read of SWPC.
	maxBody = 8 << 20
	// patience is how long an answer may take, to its last byte.
	patience = 30 * time.Second
	// maxRedirects is how often one request is sent on.
	maxRedirects = 5
)

// fetcher asks one URL. It is used by one goroutine.
type fetcher struct {
	url *url.URL
	// where is the URL as messages show it.
	where    string
	client   *http.Client
	patience time.Duration
	// known names the last answer that could be used, so that the server need not send it again.
	known validators
}

// validators are a server's names of an answer (RFC 9110, section 8.8).
type validators struct{ tag, modified string }

func newFetcher(text string) (*fetcher, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("invalid URL: %w", errors.Unwrap(err)) // its own text has the query, which may contain a key
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		return nil, fmt.Errorf("url %q does not begin with https:// and a host, or http:// and a host", shown(u))
	case u.User != nil:
		return nil, fmt.Errorf("url %q has a user: a manifest must not hold a password, and a source with one is not read", shown(u))
	}
	f := &fetcher{url: u, where: shown(u), patience: patience}
	f.client = &http.Client{Transport: transport(u.Hostname(), net.DefaultResolver), CheckRedirect: f.redirected}
	return f, nil
}

// shown is a URL as messages show it: without a query, which may have a key, and without a password.
func shown(u *url.URL) string {
	is := *u
	is.User, is.RawQuery, is.ForceQuery, is.Fragment = nil, "", false, ""
	return is.String()
}

// transport connects to addresses to which a declared host may lead. Requests are minutes apart, so each has a connection of its own; and
// no proxy is used, because the resolved addresses of a name could not be judged behind it.
func transport(host string, resolver *net.Resolver) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: addressCheck(host), Resolver: resolver}
	return &http.Transport{
		DialContext: dialer.DialContext, DisableKeepAlives: true, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10,
	}
}

// ask fetches the document and has it read. Unless it could be read, the next answer will be whole again.
func (f *fetcher) ask(ctx context.Context, now time.Time, read func([]byte) (Answer, error)) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	answer, err := f.get(ctx)
	if err != nil {
		return Answer{}, f.unreached(err)
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusNotModified && f.known != validators{}:
		return Answer{Unchanged: true}, nil
	case answer.StatusCode != http.StatusOK:
		f.known = validators{} // the server may have refused the request for them
		return Answer{}, f.refused(answer, now)
	}
	body, err := f.body(answer)
	if err != nil {
		return Answer{}, err
	}
	decoding.Lock()
	got, err := read(body)
	decoding.Unlock()
	if err != nil {
		return got, fmt.Errorf("response of %s: %w", f.where, err)
	}
	f.known = validators{}
	if !got.Early {
		f.known = validatorsOf(answer.Header)
	}
	return got, nil
}

// maxValidator bounds a validator, which is sent back with each request.
const maxValidator = 256

func validatorsOf(h http.Header) (v validators) {
	if tag := h.Get("ETag"); len(tag) <= maxValidator {
		v.tag = tag
	}
	if modified := h.Get("Last-Modified"); len(modified) <= maxValidator {
		v.modified = modified
	}
	return v
}

func (f *fetcher) get(ctx context.Context) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url.String(), nil)
	if err != nil {
		return nil, err
	}
	q.Header.Set("User-Agent", "substorm/"+build.Version()+" (space weather)")
	q.Header.Set("Accept", "application/json")
	if f.known.tag != "" {
		q.Header.Set("If-None-Match", f.known.tag)
	}
	if f.known.modified != "" {
		q.Header.Set("If-Modified-Since", f.known.modified)
	}
	return f.client.Do(q)
}

// body reads an answer up to the bound, after it was decompressed.
func (f *fetcher) body(answer *http.Response) ([]byte, error) {
	if media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")); media == "text/html" {
		return nil, fmt.Errorf("%s answers a page for people and no JSON: look at it in a browser; if it wants to know who asks, declare another source", f.where)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBody+1))
	if err != nil {
		return nil, f.unreached(err)
	}
	if len(body) > maxBody {
		return nil, fmt.Errorf("%s answers more than %d MiB: declare the URL of a smaller product", f.where, maxBody>>20)
	}
	return body, nil
}

// unreached says why there is no answer, or none to its end.
func (f *fetcher) unreached(err error) error {
	var asked *url.Error
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &asked) { // its text has the whole URL
		err = asked.Err
	}
	switch {
	case errors.Is(err, errRedirected), errors.Is(err, errAddress), errors.Is(err, egress.ErrCredentials):
		return fmt.Errorf("%s: %w", f.where, err)
	case errors.As(err, &untrusted):
		return fmt.Errorf("%s shows a certificate that no known authority signed (%w): declare another source", f.where, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s did not answer to the end within %v: it is asked again; if that lasts, declare another source", f.where, f.patience)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s cut its answer off: it is asked again; if that lasts, declare another source", f.where)
	}
	return fmt.Errorf("%s does not answer (%w): if the host is right, see whether the operator may reach it: egress policies, DNS", f.where, err)
}

// maxRetryAfter bounds for how long a source may have us wait: one that says a year by mistake would never be asked again.
const maxRetryAfter = time.Hour

// refused is the error of an answer with another status than 200.
func (f *fetcher) refused(answer *http.Response, now time.Time) error {
	err := fmt.Errorf("%s answers %d %s", f.where, answer.StatusCode, http.StatusText(answer.StatusCode))
	switch code := answer.StatusCode; {
	case code == http.StatusTooManyRequests:
		err = fmt.Errorf("%w: raise the source's interval, if that lasts", err)
	case code == http.StatusNotFound || code == http.StatusGone:
		err = fmt.Errorf("%w: the product is not there any more; declare the URL of another one", err)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		err = fmt.Errorf("%w: access is denied; declare another source", err)
	case code >= http.StatusInternalServerError:
		err = fmt.Errorf("%w: it is asked again; if that lasts, declare another source", err)
	default:
		err = fmt.Errorf("%w, and not 200: look at it in a browser", err)
	}
	if after := retryAfter(answer.Header.Get("Retry-After"), now); after > 0 {
		return &LaterError{After: min(after, maxRetryAfter), Err: err}
	}
	return err
}

// retryAfter reads seconds or a date (RFC 9110, section 10.2.3).
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(min(max(0, seconds), int(maxRetryAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return at.Sub(now)
	}
	return 0
}
