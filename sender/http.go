// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/build"
	"github.com/substorm/substorm/internal/wire"
)

// HTTPConfig is how objects are sent over HTTP.
type HTTPConfig struct {
	// Prefix of all names: what the URL has behind /in/<instrument>/.
	Prefix string
	// NameFrom is what an object is named after: NameFromPath, NameFromBase or
	// NameFromNothing.
	NameFrom string
	// TokenFile holds the bearer token. It is read for each request.
	TokenFile string
}

// maxPut is the largest object that is sent in one request, in bytes.
const maxPut = 1 << 20

// web sends objects over HTTP: small ones by PUT or POST, others by tus 1.0.0, so
// that they go on after a break.
type web struct {
	cfg    HTTPConfig
	sender *sender
	tls    TLSConfig
	client *http.Client
}

func newWeb(cfg HTTPConfig, s *sender) *web {
	plainly := *s
	plainly.tls = nil // dialTLS shakes hands, over what is counted
	w := &web{cfg: cfg, sender: &plainly, tls: s.tls}
	w.client = &http.Client{
		Transport: &http.Transport{
			DialContext: w.dial, DialTLSContext: w.dialTLS,
			// HTTP/1.1: each request has a connection for itself while it runs.
			TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}, ResponseHeaderTimeout: s.receiptTimeout,
			MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return w
}

func (w *web) close() { w.client.CloseIdleConnections() }

// webConn counts and paces what is written.
type webConn struct {
	net.Conn
	socket socket
	sender *sender
}

func (c *webConn) Write(b []byte) (int, error) {
	n, err := c.sender.write(c.socket, b, nil)
	return int(n), err
}

func (c *webConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.socket.vitals().heard()
	}
	return n, err
}

// connectKey is the context key of the time that a server may take to accept.
type connectKey struct{}

func (w *web) dial(ctx context.Context, _, address string) (net.Conn, error) {
	within, _ := ctx.Value(connectKey{}).(time.Duration)
	conn, err := w.sender.dial(ctx, address, within)
	if err != nil {
		return nil, err
	}
	conn.finish() // what HTTP ends, its own framing ends
	return &webConn{Conn: conn, socket: conn, sender: w.sender}, nil
}

// dialTLS connects over TLS.
func (w *web) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	conn, err := w.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if w.sender.dialer.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.sender.dialer.Timeout)
		defer cancel()
	}
	secured, err := handshake(ctx, conn, host, w.tls)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secured, nil
}

// vitalsOf are the vitals of a connection of net/http.
func vitalsOf(c net.Conn) *vitals {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	if own, ok := c.(*webConn); ok {
		return own.socket.vitals()
	}
	return nil
}

// attempt sends an object, or what is missing of it, and waits for its receipt.
func (w *web) attempt(ctx context.Context, address string, it item, p *pulse) verdict {
	base, err := url.Parse(address)
	if err != nil {
		return verdict{local: true, err: err}
	}
	body, err := it.open()
	if err != nil {
		return verdict{local: true, err: err}
	}
	defer body.Close()
	if it.connectWithin > 0 {
		ctx = context.WithValue(ctx, connectKey{}, it.connectWithin)
	}
	t := &transfer{web: w, base: base, item: it, pulse: p, name: w.cfg.fullName(it.sentName)}
	first := make([]byte, maxPut+1)
	n, err := io.ReadFull(body, first)
	switch {
	case errors.Is(err, io.EOF):
		return verdict{local: true, err: errEmpty}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return t.put(ctx, first[:n])
	case err != nil:
		return verdict{local: true, err: err}
	}
	return t.upload(ctx, first, body)
}

// transfer is one try of one object.
type transfer struct {
	*web
	base   *url.URL
	item   item
	pulse  *pulse
	name   string
	digest wire.Digest
	size   int64
}

// put sends a small object in one request.
func (t *transfer) put(ctx context.Context, data []byte) verdict {
	t.digest, t.size = digestOf(data), int64(len(data))
	if err := t.item.checkUnchanged(t.digest); err != nil {
		return verdict{local: true, err: err}
	}
	method, to := http.MethodPost, t.base.Path
	if t.name != "" {
		method, to = http.MethodPut, t.base.Path+t.name
	}
	a, err := t.do(ctx, method, to, http.Header{"Repr-Digest": {reprDigest(t.digest)}}, bytes.NewReader(data), t.size)
	v := t.judge(a, err)
	v.digest, v.bytes, v.whole = t.digest, t.size, v.receipted || a.wrote
	if !v.receipted {
		t.sender.lost(a.taken)
	}
	return v
}

// answer is what a server answered.
type answer struct {
	status int
	header http.Header
	body   []byte
	// taken bytes of the request's body; wrote: all of them.
	taken int64
	wrote bool
}

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 16 << 10

// do makes a request of a path. The answer's taken and wrote hold with an error too.
func (t *transfer) do(ctx context.Context, method, path string, header http.Header, body io.Reader, size int64) (answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var a answer
	counted := &countingReader{from: body}
	to := *t.base
	to.Path = path
	if size == 0 {
		body = nil
	} else {
		body = counted
	}
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, t.trace(cancel)), method, to.String(), body)
	if err != nil {
		return a, err
	}
	r.ContentLength = size
	if seeker, ok := counted.from.(io.Seeker); ok { // over a connection that was closed meanwhile it is sent again
		r.GetBody = func() (io.ReadCloser, error) {
			_, err := seeker.Seek(0, io.SeekStart)
			counted.read.Store(0)
			return io.NopCloser(counted), err
		}
	}
	for key, values := range header {
		r.Header[key] = values
	}
	r.Header.Set("User-Agent", "substorm-send/"+build.Version())
	if err := t.authorize(r); err != nil {
		return a, err
	}
	resp, err := t.client.Do(r)
	a.taken, a.wrote = counted.read.Load(), counted.read.Load() == size
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok { // the rest of it repeats the caller's message
			err = wrapped.Err
		}
		if errors.Is(context.Cause(ctx), errAside) {
			err = errAside
		}
		return a, err
	}
	defer resp.Body.Close()
	a.status, a.header = resp.StatusCode, resp.Header
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return a, err
}

// trace ties a request to its connection, and gives it up where another try of
// the object was faster.
func (t *transfer) trace(cancel context.CancelCauseFunc) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			v := vitalsOf(info.Conn)
			if v == nil {
				return
			}
			v.begin()
			t.pulse.setConn(v)
			if !t.pulse.hasBegun() && !t.pulse.begins() {
				cancel(errAside)
			}
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				t.pulse.markWritten()
			}
		},
	}
}

// authorize shows the token. It is nowhere else than in the file and the header.
func (t *transfer) authorize(r *http.Request) error {
	if t.cfg.TokenFile == "" {
		return nil
	}
	token, err := readToken(t.cfg.TokenFile)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return nil
}

func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("--token-file: %s does not hold one token and nothing else", file)
	}
	return token, nil
}

func reprDigest(d wire.Digest) string {
	return "sha-256=:" + base64.StdEncoding.EncodeToString(d[:]) + ":"
}
