// SPDX-License-Identifier: Apache-2.0

// Package https asks another Substorm for what a mirror lacks: its mirror index
// (internal/mirrorindex), bundles of small objects, and large ones in parts.
package https

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/substorm/substorm/internal/egress"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// Tries of a request that fails in a way that may pass are firstPause apart and each time
	// twice as long, up to lastPause or as long as the other side asks for, up to
	// longestPause.
	firstPause   = 500 * time.Millisecond
	lastPause    = 15 * time.Second
	longestPause = time.Minute
	// maxProblem bounds what is read of an answer that is a refusal.
	maxProblem = 64 << 10
)

// Config says whom to ask, and as whom.
type Config struct {
	// URL of the other side's feed server, as https://archive.example.org.
	URL *url.URL
	// Token is a reader's; empty: anonymous, or a certificate of TLS.
	Token string
	// TLS is of https URLs.
	TLS *tls.Config
	// Connections are kept at most.
	Connections int
	// Agent is the User-Agent.
	Agent string
	// BytesPerSecond is the rate that is declared, 0 for none; fewer parts are asked for at the
	// same time where that needs fewer. Received keeps it. Optional.
	BytesPerSecond func() int64
	// Received is called with the number of all bytes that come, and may delay what follows on that connection. Optional.
	Received func(bytes int)
	// Patience is how slow the other side may be.
	Patience Patience
	// Kept bounds the memory of what it answers.
	Kept Kept
	// Again is called with the error of a request that is repeated after a while. It may be called from several goroutines. Optional.
	Again func(err error, after time.Duration)
}

// Client asks one feed server. Its methods may be called from several goroutines.
type Client struct {
	cfg  Config
	http *http.Client
	path *path
	// streams bounds the parts that are asked for at the same time, and bundles the bundles, by
	// what the other side says that it sends, which is sends.
	streams, bundles *streams
	sends            atomic.Int64
	// may says whether the server may send us on to a place of it; nil: to any.
	may func(*url.URL) error
}

// RefusedError is an answer that will not become another by asking again.
type RefusedError struct {
	URL    string
	Status int
	Detail string
}

// Error implements error.
func (e *RefusedError) Error() string {
	text := fmt.Sprintf("%s answers %d %s", e.URL, e.Status, http.StatusText(e.Status))
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// ErrBroken: an answer ended too early, or is none that this program reads.
var ErrBroken = errors.New("the answer is not whole")

// ErrPage: a page of HTML came in place of an index, as from a captive portal, or from a proxy with a wrong route.
var ErrPage = errors.New("the answer is a page of HTML")

// isPage says whether a page came in place of an index. Objects may be pages.
func isPage(path string, answer *http.Response) bool {
	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	return strings.HasPrefix(path, mirrorindex.RootPath) && media == "text/html"
}

// New returns a client.
func New(cfg Config) *Client {
	cfg.Patience = cfg.Patience.orDefault()
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second, Control: egress.Partner().Control}
	// A protocol is named so that HTTP/2 is not: many connections of HTTP/1.1 carry more over
	// a long way than one (the OASIS study, section 5).
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	way := &path{}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: way.dial(dialer), TLSClientConfig: cfg.TLS, TLSHandshakeTimeout: 15 * time.Second,
		MaxConnsPerHost: cfg.Connections, MaxIdleConnsPerHost: cfg.Connections, IdleConnTimeout: 30 * time.Second,
		ResponseHeaderTimeout: cfg.Patience.Silence, DisableCompression: true, ReadBufferSize: 64 << 10, Protocols: protocols,
	}
	c := &Client{cfg: cfg, path: way, streams: newStreams(), bundles: newStreams()}
	c.http = &http.Client{Transport: transport, CheckRedirect: c.redirected}
	return c
}

// Redirects has may asked whenever the server sends us on to another of its places; its error ends the request. It is called before
// the first request.
func (c *Client) Redirects(may func(to *url.URL) error) { c.may = may }

func (c *Client) redirected(q *http.Request, via []*http.Request) error {
	err := sameHost(q, via)
	if err == nil && c.may != nil {
		if err = c.may(q.URL); err != nil {
			err = fmt.Errorf("%w: %w", errElsewhere, err)
		}
	}
	return err
}

// maxRedirects is how often a request is sent on.
const maxRedirects = 5

var errElsewhere = errors.New("the server redirects")

// sameHost: what is declared is one server, and it may send us on to no other.
func sameHost(q *http.Request, via []*http.Request) error {
	if first := via[0].URL; q.URL.Host != first.Host || q.URL.Scheme != first.Scheme {
		return fmt.Errorf("%w, to %s: declare that server, if that is meant", errElsewhere, q.URL.Redacted())
	}
	if len(via) > maxRedirects {
		return fmt.Errorf("%w more than %d times", errElsewhere, maxRedirects)
	}
	return nil
}

// Get asks for what lies below the URL, at an escaped path that begins with a slash, as it is, and gives the answer to read, which
// may be called again. Errors: RefusedError, ErrBroken, of the network, of read.
func (c *Client) Get(ctx context.Context, path string, header map[string]string, read func(*http.Response) error) error {
	all := map[string]string{"Accept-Encoding": "identity"}
	maps.Copy(all, header)
	return c.do(ctx, request{method: http.MethodGet, path: path, header: all}, read)
}

// Close ends the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// request is one question.
type request struct {
	method, path string
	body         []byte
	header       map[string]string
	// turn waits until it may be asked; nil: at once.
	turn func(context.Context) (end func(), err error)
}

// do asks until there is an answer that read takes, or none may be expected. Read may be
// called again after it returned an error that wraps ErrBroken. Errors: RefusedError, of read,
// of the network.
func (c *Client) do(ctx context.Context, r request, read func(*http.Response) error) error {
	pause := firstPause
	for try := 1; ; try++ {
		wait, err := c.tryRequest(ctx, r, read)
		if err == nil || ctx.Err() != nil || wait < 0 || try == c.cfg.Patience.Tries {
			return err
		}
		wait = min(max(wait, pause/2+rand.N(pause)), longestPause)
		if c.cfg.Again != nil {
			c.cfg.Again(err, wait)
		}
		if !retry.Sleep(ctx, wait) {
			return err
		}
		pause = min(2*pause, lastPause)
	}
}

// never is the wait before what is of no use to ask again.
const never = time.Duration(-1)

// tryRequest asks once. Wait is how long to wait at least before it is asked again.
func (c *Client) tryRequest(ctx context.Context, r request, read func(*http.Response) error) (wait time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	q, err := c.newRequest(ctx, r)
	if err != nil {
		return never, err
	}
	if r.turn != nil {
		end, err := r.turn(ctx)
		if err != nil {
			return never, err
		}
		defer end()
	}
	asked := time.Now()
	traced, begins := c.cfg.Patience.watchAnswer(ctx, cancel)
	answer, err := c.http.Do(q.WithContext(traced))
	begins()
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrBroken) {
		return 0, fmt.Errorf("%s: %w", q.URL.Redacted(), cause)
	}
	if err != nil {
		if unverified(err) || errors.Is(err, errElsewhere) {
			return never, err
		}
		return 0, err
	}
	c.path.noteAnswer(time.Since(asked))
	answer.Body = newWatched(answer.Body, c.cfg.Patience, cancel, c.cfg.Received)
	if answer.StatusCode == http.StatusNotModified && q.Header.Get("If-None-Match") == "" && q.Header.Get("If-Modified-Since") == "" {
		answer.Body.Close()
		return never, malformedError{fmt.Errorf("%s answers 304 Not Modified to an unconditional request", q.URL.Redacted())}
	}
	if answer.StatusCode >= 400 {
		defer answer.Body.Close()
		return refusal(q.URL, answer)
	}
	if isPage(r.path, answer) {
		answer.Body.Close()
		return never, fmt.Errorf("%s is not the mirror index of a Substorm: %w", q.URL.Redacted(), ErrPage)
	}
	body := readAhead(answer.Body, aheadOf(c.cfg.Connections))
	defer body.Close()
	answer.Body = body
	if err := decodeBody(r.path, answer); err != nil {
		return never, err
	}
	defer answer.Body.Close()
	if err := read(answer); err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, ErrBroken) { // nothing came for too long, or too little
			err = cause
		}
		if errors.Is(err, ErrBroken) {
			return 0, err
		}
		return never, err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(body, maxProblem)) // the end, without which the connection is not used again
	return 0, nil
}

func (c *Client) newRequest(ctx context.Context, r request) (*http.Request, error) {
	q, err := http.NewRequestWithContext(ctx, r.method, c.cfg.URL.String()+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	q.Header.Set("User-Agent", c.cfg.Agent)
	q.Header.Set("Accept-Encoding", "zstd")
	if c.cfg.Token != "" {
		q.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	for name, value := range r.header {
		q.Header.Set(name, value)
	}
	return q, nil
}

// refusal reads why an answer is none.
func refusal(from *url.URL, answer *http.Response) (wait time.Duration, err error) {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxProblem))
	e := &RefusedError{URL: from.Redacted(), Status: answer.StatusCode}
	var p problem.Problem
	if strings.HasPrefix(answer.Header.Get("Content-Type"), problem.ContentType) && json.Unmarshal(text, &p) == nil {
		e.Detail = wire.SaidText(p.Detail)
	}
	switch answer.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusInternalServerError, http.StatusRequestTimeout:
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		return time.Duration(min(max(0, seconds), int(longestPause/time.Second))) * time.Second, e
	case http.StatusUnauthorized, http.StatusForbidden:
		if e.Detail == "" {
			e.Detail = "show a reader's token or certificate that may read there"
		}
	}
	return never, e
}

// storedAs are the codings that servers name of files which lie compressed there, by the ends of their names: Apache does so with
// AddEncoding. Such a file's bytes are those that come.
var storedAs = map[string][]string{
	"gzip": {".gz", ".tgz"}, "x-gzip": {".gz", ".tgz"}, "compress": {".z"}, "x-compress": {".z"}, "br": {".br"}, "bzip2": {".bz2"}, "x-bzip2": {".bz2"}, "xz": {".xz"},
}

// decodeBody makes the body of the answer to a path what it was before it was compressed.
func decodeBody(path string, answer *http.Response) error {
	coding := strings.ToLower(answer.Header.Get("Content-Encoding"))
	if slices.ContainsFunc(storedAs[coding], func(end string) bool { return strings.HasSuffix(strings.ToLower(path), end) }) {
		return nil
	}
	switch coding {
	case "", "identity":
		return nil
	case "zstd":
		var came int64
		z, err := zstd.NewReader(counted{answer.Body, &came}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
		if err != nil {
			return err
		}
		answer.Body = &inflated{ReadCloser: z.IOReadCloser(), came: &came}
		return nil
	default:
		return malformedError{fmt.Errorf("%w: it has content coding %.40q", ErrBroken, coding)}
	}
}

const (
	// inflatedFree and inflatedTimes bound what an answer is decompressed to: so many bytes, and so many times what came. Lists are
	// compressed five times, and a bundle has fewer bytes than inflatedFree.
	inflatedFree  = 64 << 20
	inflatedTimes = 64
)

// errInflated: an answer is decompressed to more than those bounds.
var errInflated = fmt.Errorf("the answer decompresses to more than %d times its size, and is refused", inflatedTimes)

// inflated is what an answer is decompressed to.
type inflated struct {
	io.ReadCloser
	// came counts what was read to decompress it, n what that came to.
	came *int64
	n    int64
}

// Read implements io.Reader.
func (i *inflated) Read(p []byte) (int, error) {
	n, err := i.ReadCloser.Read(p)
	if i.n += int64(n); i.n > inflatedFree+inflatedTimes**i.came {
		return 0, errInflated
	}
	return n, err
}
