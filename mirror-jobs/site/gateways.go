// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// gatewayPatience is how long a run waits for a gateway that takes anything: gateways that are
	// replaced, and a store that is away, come back.
	gatewayPatience = 5 * time.Minute
	// settling is how long gateways may take to hear of a run, and of what it brings.
	settling = 30 * time.Second
	// firstPause between tries of an object, each time twice as long up to lastPause.
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
	// lookAgain is how often at most it is looked which gateways there are.
	lookAgain = time.Second
	// silence is how long a gateway may take to answer once it has an object.
	silence = 2 * time.Minute
	// maxProblem bounds what is read of a refusal.
	maxProblem = 64 << 10
)

// refusedError is the answer of a gateway that no other try changes.
type refusedError struct {
	status int
	detail string
}

// Error implements error.
func (e *refusedError) Error() string {
	return fmt.Sprintf("the gateway answers %d %s: %s", e.status, http.StatusText(e.status), e.detail)
}

// gateways are those of the Site that take what a mirror pulls.
type gateways struct {
	partner     string
	status      jetstream.KeyValue
	pair        *certificate.Ephemeral
	connections int
	began       time.Time

	mu     sync.Mutex
	open   map[wire.MirrorListener]*http.Client
	order  []wire.MirrorListener
	next   int
	looked time.Time
}

func newGateways(partner string, status jetstream.KeyValue, pair *certificate.Ephemeral, connections int) *gateways {
	return &gateways{partner: partner, status: status, pair: pair, connections: connections, began: time.Now(), open: map[wire.MirrorListener]*http.Client{}}
}

// object is one on its way to a gateway.
type object struct {
	instrument string
	record     wire.MirroredObject
	// body opens the bytes, each time that they are sent.
	body func() (io.ReadCloser, error)
	// once: they can be sent once only.
	once bool
}

func ofBytes(data []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
}

// put brings an object to its receipt, over whichever gateway. Errors: refusedError, of the body, ctx's; any
// other says why no gateway took it for gatewayPatience.
func (g *gateways) put(ctx context.Context, o object) error {
	pause := firstPause
	for end := time.Now().Add(gatewayPatience); ; {
		wait, err := g.try(ctx, o)
		var refused *refusedError
		if err == nil || ctx.Err() != nil || o.once {
			return err
		}
		if errors.As(err, &refused) && !g.mayPass(refused) || time.Now().After(end) {
			return err
		}
		if !retry.Sleep(ctx, max(wait, pause/2+rand.N(pause))) {
			return err
		}
		pause = min(2*pause, lastPause)
	}
}

// mayPass says whether another try may be answered otherwise.
func (g *gateways) mayPass(e *refusedError) bool {
	switch e.status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusInternalServerError, http.StatusInsufficientStorage:
		return true
	case http.StatusForbidden, http.StatusUnauthorized, http.StatusNotFound:
		return time.Since(g.began) < settling
	}
	return false
}

// try sends an object once. Wait is how long to wait at least before it is sent again.
func (g *gateways) try(ctx context.Context, o object) (wait time.Duration, err error) {
	at, client, err := g.choose(ctx)
	if err != nil {
		return lookAgain, err
	}
	body, err := o.body()
	if err != nil {
		return 0, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPut, "https://"+at.Address+wire.MirroredPath(g.partner, o.instrument), body)
	if err != nil {
		return 0, errors.Join(err, body.Close())
	}
	header, err := o.record.Header()
	if err != nil {
		return 0, errors.Join(err, body.Close())
	}
	q.ContentLength = o.record.Size
	q.Header.Set(wire.HeaderRecord, header)
	answer, err := client.Do(q)
	if err != nil {
		g.forget(at)
		return 0, fmt.Errorf("gateway at %s: %w", at.Address, err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxProblem))
	if answer.StatusCode < 300 {
		return 0, nil
	}
	seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
	return time.Duration(max(0, seconds)) * time.Second, &refusedError{answer.StatusCode, detail(answer, text)}
}

func detail(answer *http.Response, text []byte) string {
	var p problem.Problem
	if strings.HasPrefix(answer.Header.Get("Content-Type"), problem.ContentType) && json.Unmarshal(text, &p) == nil && p.Detail != "" {
		return p.Detail
	}
	return strings.TrimSpace(string(text))
}

// choose returns the next gateway.
func (g *gateways) choose(ctx context.Context) (wire.MirrorListener, *http.Client, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.order) == 0 {
		if err := g.look(ctx); err != nil {
			return wire.MirrorListener{}, nil, err
		}
	}
	g.next = (g.next + 1) % len(g.order)
	at := g.order[g.next]
	if g.open[at] == nil {
		g.open[at] = g.client(at)
	}
	return at, g.open[at], nil
}

// look finds out which gateways there are.
func (g *gateways) look(ctx context.Context) error {
	if time.Since(g.looked) < lookAgain {
		return errNoGateway
	}
	g.looked = time.Now()
	watcher, err := g.status.Watch(ctx, wire.GatewayStatusKey("*"))
	if err != nil {
		return fmt.Errorf("which gateways there are: %w", err)
	}
	defer func() { _ = watcher.Stop() }()
	for {
		select {
		case e, more := <-watcher.Updates():
			if !more || e == nil {
				if len(g.order) == 0 {
					return errNoGateway
				}
				return nil
			}
			s, err := wire.Decode[wire.GatewayStatus](e.Value())
			if err == nil && e.Operation() == jetstream.KeyValuePut && s.Mirror != nil && !s.Draining && !s.Stopped && time.Since(s.ReportedAt) < settling {
				g.order = append(g.order, *s.Mirror)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errNoGateway = errors.New("no gateway of the Site takes what mirrors pull: see that an IngestGateway runs (kubectl get ingestgateways)")

// forget has a gateway that does not answer be looked for again.
func (g *gateways) forget(at wire.MirrorListener) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.order = nil
}

func (g *gateways) client(at wire.MirrorListener) *http.Client {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{Transport: &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: g.pair.Client(at.Certificate), TLSHandshakeTimeout: 10 * time.Second, Protocols: protocols,
		MaxConnsPerHost: g.connections, MaxIdleConnsPerHost: g.connections, IdleConnTimeout: 30 * time.Second, ResponseHeaderTimeout: silence,
		WriteBufferSize: 64 << 10, DisableCompression: true,
	}}
}

func (g *gateways) close() {
	for _, c := range g.open {
		c.CloseIdleConnections()
	}
}
