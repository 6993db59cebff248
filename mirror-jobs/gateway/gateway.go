// SPDX-License-Identifier: Apache-2.0

// Package gateway brings what a run pulls into the archive: it finds the gateways of the Site, which receive it as data of any sender.
// Both sides present certificates that they have made for this purpose, and publish them to each other in the Site's key-value buckets,
// where no other program may write.
package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// gatewayPatience is how long a run waits for a gateway that takes anything: gateways that are
	// replaced, and a store that is away, come back.
	gatewayPatience = 5 * time.Minute
	// fresh is how old a gateway's report may be, by the clock of the NATS server: those of the gateway and of this machine may differ.
	fresh = 30 * time.Second
	// firstPause between tries of an object, each time twice as long up to lastPause.
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
	// lookAgain is how often at most it is looked which gateways there are.
	lookAgain = time.Second
	// tellAfter is how long an object may take to be taken before it is logged why, every tellEvery.
	tellAfter = 2 * time.Second
	tellEvery = 10 * time.Second
	// maxProblem bounds what is read of a refusal.
	maxProblem = 64 << 10
)

// RefusedError is an answer of a gateway that is no receipt.
type RefusedError struct {
	Status int
	Detail string
	// Cause is why the gateway counts the object as refused; empty: the answer does not say.
	Cause wire.Cause

	mayPass bool
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the gateway answers %d %s: %s", e.Status, http.StatusText(e.Status), e.Detail)
}

// Reason is the reason of a report (wire.MirrorReason…) for the error.
func (e *RefusedError) Reason() string {
	switch e.Cause {
	case wire.CauseNameConflict:
		return wire.MirrorReasonNameConflict
	case wire.CauseDigestMismatch:
		return wire.MirrorReasonDigestMismatch
	default:
		return wire.MirrorReasonRefused
	}
}

// Client sends objects to the gateways of a Site. Its methods may be called from several goroutines.
type Client struct {
	cfg             Config
	status, entries jetstream.KeyValue
	pair            *certificate.Ephemeral
	// entry is the revision of the run's own.
	entry uint64

	mu     sync.Mutex
	open   map[wire.MirrorListener]*http.Client
	order  []wire.MirrorListener
	next   int
	looked time.Time
	// told is when it was last logged that the gateways accept nothing.
	told time.Time
}

// Config says who sends.
type Config struct {
	Site, Partner string
	// Kind of run: wire.MirrorScheduled or wire.MirrorManual, as its lease.
	Kind      string
	JetStream jetstream.JetStream
	// Connections to a gateway at most.
	Connections int
	// Silence is how long a gateway may take nothing of an object; 0: 2 minutes.
	Silence time.Duration
	Logger  *slog.Logger
}

// Open has gateways know a run, until Close. Errors: of NATS.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	pair, err := certificate.NewEphemeral("mirror " + cfg.Partner)
	if err != nil {
		return nil, err
	}
	status, err := cfg.JetStream.KeyValue(ctx, wire.StatusBucket(cfg.Site))
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", wire.StatusBucket(cfg.Site), err)
	}
	entries, err := cfg.JetStream.KeyValue(ctx, wire.RegistryBucket(cfg.Site))
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", wire.RegistryBucket(cfg.Site), err)
	}
	g := &Client{cfg: cfg, status: status, entries: entries, pair: pair, open: map[wire.MirrorListener]*http.Client{}}
	data, err := wire.Encode(wire.MoverEntry{Partner: cfg.Partner, Kind: cfg.Kind, Certificate: pair.Digest()})
	if err == nil {
		g.entry, err = entries.Put(ctx, g.key(), data)
	}
	if err != nil {
		return nil, fmt.Errorf("%s of bucket %s: %w", g.key(), entries.Bucket(), err)
	}
	return g, nil
}

// key of the run's entry.
func (g *Client) key() string { return wire.RegistryMoverKey(g.cfg.Partner, g.cfg.Kind) }

// Close has gateways forget the run. If that fails, the next run replaces its entry, and the key of this one is gone with the
// process. The entry of another run, which has taken the place of this one since, stays.
func (g *Client) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = g.entries.Delete(ctx, g.key(), jetstream.LastRevision(g.entry))
	for _, c := range g.open {
		c.CloseIdleConnections()
	}
}

// Object is one on its way to a gateway.
type Object struct {
	// Instrument is a guest, or one of the Site itself.
	Instrument string
	Record     wire.MirroredObject
	// Open opens the bytes, each time that they are sent.
	Open func() (io.ReadCloser, error)
}

// Bytes opens what is in memory.
func Bytes(data []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
}

// Put brings an object to its receipt, over whichever gateway. Errors: RefusedError, of Open, ctx's; any
// other says why no gateway took it for some minutes.
func (g *Client) Put(ctx context.Context, o Object) error {
	pause, begun := firstPause, time.Now()
	var failed time.Time // first: until then it may have waited for a connection
	for {
		wait, err := g.try(ctx, o)
		if err == nil || ctx.Err() != nil || g.Final(err) {
			return err
		}
		if failed.IsZero() {
			failed = time.Now()
		}
		if time.Since(failed) > gatewayPatience {
			return err
		}
		if time.Since(begun) > tellAfter {
			g.logRefused(err)
		}
		if !retry.Sleep(ctx, max(wait, pause/2+rand.N(pause))) {
			return err
		}
		pause = min(2*pause, lastPause)
	}
}

// logRefused logs why gateways take nothing, now and then.
func (g *Client) logRefused(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.told) > tellEvery {
		g.told = time.Now()
		g.cfg.Logger.Warn("a gateway does not take pulled objects; retrying", "error", err)
	}
}

// Final says whether an error is about one object alone, and no other try changes it.
func (g *Client) Final(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && !refused.mayPass
}

// mayPass says whether another try may be answered otherwise. A gateway that has not heard of a run, or of what it brings, says when
// to come again.
func mayPass(answer *http.Response) bool {
	switch answer.StatusCode {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusInternalServerError, http.StatusInsufficientStorage:
		return true
	}
	return answer.Header.Get("Retry-After") != ""
}

// try sends an object once. Wait is how long to wait at least before it is sent again.
func (g *Client) try(ctx context.Context, o Object) (wait time.Duration, err error) {
	at, client, err := g.choose(ctx)
	if err != nil {
		return lookAgain, err
	}
	from, err := o.Open()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body := newSending(from, o.Record.Size, cmp.Or(g.cfg.Silence, defaultSilence), cancel)
	defer body.timer.Stop()
	q, err := http.NewRequestWithContext(ctx, http.MethodPut, "https://"+at.Address+wire.MirroredPath(g.cfg.Partner, o.Instrument), body)
	if err != nil {
		return 0, errors.Join(err, body.Close())
	}
	header, err := o.Record.Header()
	if err != nil {
		return 0, errors.Join(err, body.Close())
	}
	q.ContentLength = o.Record.Size
	q.Header.Set(wire.HeaderRecord, header)
	answer, err := client.Do(q)
	if err != nil {
		g.forget(at)
		if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
			err = cause
		}
		return 0, fmt.Errorf("gateway at %s: %w", at.Address, err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxProblem))
	if answer.StatusCode < 300 {
		return 0, nil
	}
	seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
	return time.Duration(max(0, seconds)) * time.Second, refusal(answer, text)
}

// refusal is what an answer says that is no receipt.
func refusal(answer *http.Response, text []byte) *RefusedError {
	e := &RefusedError{Status: answer.StatusCode, Detail: wire.SaidText(string(text)), mayPass: mayPass(answer)}
	var p struct {
		problem.Problem
		Cause wire.Cause `json:"cause"`
	}
	if strings.HasPrefix(answer.Header.Get("Content-Type"), problem.ContentType) && json.Unmarshal(text, &p) == nil && p.Detail != "" {
		e.Detail, e.Cause = wire.SaidText(p.Detail), p.Cause
	}
	return e
}

// choose returns the next gateway.
func (g *Client) choose(ctx context.Context) (wire.MirrorListener, *http.Client, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.order) == 0 {
		if err := g.findGateways(ctx); err != nil {
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

// findGateways finds out which gateways there are.
func (g *Client) findGateways(ctx context.Context) error {
	if time.Since(g.looked) < lookAgain {
		return errNoGateway
	}
	g.looked = time.Now()
	now, err := stream.ServerTime(ctx, g.cfg.JetStream, "KV_"+g.status.Bucket())
	if err != nil {
		return fmt.Errorf("list the gateways: %w", err)
	}
	watcher, err := g.status.Watch(ctx, wire.GatewayStatusKey("*"))
	if err != nil {
		return fmt.Errorf("list the gateways: %w", err)
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
			if err == nil && e.Operation() == jetstream.KeyValuePut && s.Mirror != nil && !s.Draining && !s.Stopped && now.Sub(e.Created()) < fresh {
				g.order = append(g.order, *s.Mirror)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errNoGateway = errors.New("no gateway of the Site takes what mirrors pull: see that an IngestGateway runs (kubectl get ingestgateways)")

// forget has a gateway that does not answer be looked for again.
func (g *Client) forget(at wire.MirrorListener) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.order = nil
	if c := g.open[at]; c != nil {
		c.CloseIdleConnections()
		delete(g.open, at)
	}
}

func (g *Client) client(at wire.MirrorListener) *http.Client {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{Transport: &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: g.pair.Client(at.Certificate), TLSHandshakeTimeout: 10 * time.Second, Protocols: protocols,
		MaxConnsPerHost: g.cfg.Connections, MaxIdleConnsPerHost: g.cfg.Connections, IdleConnTimeout: 30 * time.Second,
		WriteBufferSize: 64 << 10, DisableCompression: true,
	}}
}
