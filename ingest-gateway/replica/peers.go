// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/durable"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// maxConnections to a peer, each with one object on its way: so many first
	// slabs fit into the peer's memory for copies.
	maxConnections = 64
	// silentAfter is when a gateway that could report counts as one that is gone.
	silentAfter = 15 * time.Second
	// shunFor is how long a peer that failed is not asked again.
	shunFor = 5 * time.Second
	// maxWaiting ids wait to be said to be archived; what is beyond that the peer
	// finds there itself.
	maxWaiting = 100_000
)

// errNotThePeer: a remembered address belongs to another pod now, or to one on our own
// node, where a copy would be lost with the original.
var errNotThePeer = errors.New("the address is not that of a peer on another node")

// PeersConfig says which gateways may have copies.
type PeersConfig struct {
	// Pool, Gateway and Node are where this one runs. Without a Node it is unknown which nodes are
	// other ones, and there are no peers.
	Pool, Gateway, Node string
	TLS                 *Certificates
	// File keeps the peers last seen: a gateway that starts while JetStream is away
	// needs them.
	File   string
	Logger *slog.Logger
}

// Peers are the pool's other gateways. Its methods may be called from many
// goroutines.
type Peers struct {
	cfg    PeersConfig
	client *http.Client

	mu      sync.Mutex
	gateway map[string]seen
	// since is when reports began to be read; zero while they are not.
	since   time.Time
	shunned map[string]time.Time
	current string
	// archived are ids to report to peers, and wake has something if there are any.
	archived map[string][]string
	wake     chan struct{}
}

// seen is a gateway's last report, and when it came.
type seen struct {
	Status wire.GatewayStatus `json:"status"`
	At     time.Time          `json:"at"`
}

// NewPeers returns the peers that were seen last.
func NewPeers(cfg PeersConfig) *Peers {
	transport := &http.Transport{
		TLSClientConfig: cfg.TLS.client(), TLSHandshakeTimeout: 2 * time.Second, IdleConnTimeout: idleTimeout,
		MaxConnsPerHost: maxConnections, MaxIdleConnsPerHost: maxConnections,
	}
	p := &Peers{cfg: cfg, client: &http.Client{Transport: transport}, gateway: map[string]seen{}, shunned: map[string]time.Time{},
		archived: map[string][]string{}, wake: make(chan struct{}, 1)}
	if b, err := os.ReadFile(cfg.File); err == nil {
		if err := json.Unmarshal(b, &p.gateway); err != nil {
			cfg.Logger.Warn("cannot read the file of peers; finding peers again", "file", cfg.File, "error", err)
			p.gateway = map[string]seen{}
		}
	}
	return p
}

// mayKeep says whether a gateway may have our copies, now.
func (p *Peers) mayKeep(s seen, now time.Time) bool {
	g := &s.Status
	switch {
	case g.Pool != p.cfg.Pool || g.Gateway == p.cfg.Gateway || g.Replica == "":
		return false
	case p.cfg.Node == "" || g.Node == "" || g.Node == p.cfg.Node || g.Draining || g.Stopped:
		return false
	case p.since.IsZero(): // JetStream is away: those seen last
		return true
	default:
		return now.Sub(s.At) < silentAfter || now.Sub(p.since) < silentAfter
	}
}

// candidates returns the gateways that may have copies, the one that has had them so far first.
func (p *Peers) candidates() []wire.GatewayStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	var names []string
	for name, s := range p.gateway {
		if p.mayKeep(s, now) && now.After(p.shunned[name]) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	// Each gateway's peer is the next one by name, so that all have one.
	after, _ := slices.BinarySearch(names, p.cfg.Gateway)
	names = append(names[after:len(names):len(names)], names[:after]...)
	if i := slices.Index(names, p.current); i > 0 {
		names = append([]string{p.current}, slices.Delete(slices.Clone(names), i, i+1)...)
	}
	all := make([]wire.GatewayStatus, len(names))
	for i, name := range names {
		all[i] = p.gateway[name].Status
	}
	return all
}

// Peer is the gateway that gets copies; empty if there is none.
func (p *Peers) Peer() string {
	if c := p.candidates(); len(c) > 0 {
		return c[0].Gateway
	}
	return ""
}

// Copy sends an object to a peer and returns the peer that has it on the disk. Body is read from
// its beginning for each peer that is tried. Errors: ErrNoPeer, ctx's.
func (p *Peers) Copy(ctx context.Context, n wire.Notice, body io.ReadSeeker) (string, error) {
	errs := []error{ErrNoPeer}
	for _, peer := range p.candidates() {
		err := p.copyTo(ctx, peer, n, body)
		if err == nil {
			p.mu.Lock()
			p.current = peer.Gateway
			p.mu.Unlock()
			return peer.Gateway, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", peer.Gateway, err))
		if ctx.Err() != nil {
			break
		}
		p.mu.Lock()
		p.shunned[peer.Gateway] = time.Now().Add(shunFor)
		p.mu.Unlock()
		p.cfg.Logger.Warn("a peer does not keep a copy; trying another one", "peer", peer.Gateway, "address", peer.Replica, "error", err)
	}
	return "", errors.Join(errs...)
}

func (p *Peers) copyTo(ctx context.Context, peer wire.GatewayStatus, n wire.Notice, body io.ReadSeeker) error {
	head, err := writeNotice(n)
	if err != nil {
		return err
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	content := io.NopCloser(io.MultiReader(bytes.NewReader(head), body))
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, "https://"+peer.Replica+copiesPath+p.cfg.Gateway, content)
	if err != nil {
		return err
	}
	r.ContentLength = int64(len(head)) + n.Size
	return p.do(r, peer.Gateway)
}

// do asks a peer, and checks that this peer answers.
func (p *Peers) do(r *http.Request, peer string) error {
	r.Header.Set(wire.HeaderGateway, peer)
	r.Header.Set(wire.HeaderNode, p.cfg.Node)
	resp, err := p.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	gateway, node := resp.Header.Get(wire.HeaderGateway), resp.Header.Get(wire.HeaderNode)
	switch {
	case gateway != peer:
		return fmt.Errorf("pod %q answers at %s, not %s: %w", gateway, r.URL.Host, peer, errNotThePeer)
	case node == "" || node == p.cfg.Node:
		return fmt.Errorf("pod %s is on node %q, and this one on %q: %w", gateway, node, p.cfg.Node, errNotThePeer)
	case resp.StatusCode == http.StatusNoContent:
		return nil
	case resp.StatusCode == http.StatusInsufficientStorage:
		return fmt.Errorf("%w: %s", spool.ErrFull, text)
	default:
		return errors.Join(fmt.Errorf("%s: %s", resp.Status, text), err)
	}
}

// Done reports to a peer, in the background, that an object is archived that it has a copy of. If
// maxWaiting reports are pending, the peer is left to find out itself.
func (p *Peers) Done(peer, id string) {
	p.mu.Lock()
	if len(p.archived[peer]) < maxWaiting {
		p.archived[peer] = append(p.archived[peer], id)
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run says what is archived, until ctx ends; then once more.
func (p *Peers) Run(ctx context.Context) error {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shunFor)
			defer cancel()
			p.sayDone(last)
			return nil
		case <-p.wake:
		case <-again:
		}
		again = nil
		if !p.sayDone(ctx) { // a peer is away
			again = time.After(time.Second)
		}
	}
}

// sayDone says all that waits to be said, and returns whether all was heard.
func (p *Peers) sayDone(ctx context.Context) (all bool) {
	p.mu.Lock()
	peers := slices.Collect(maps.Keys(p.archived))
	p.mu.Unlock()
	all = true
	for _, peer := range peers {
		for p.sayDoneTo(ctx, peer, &all) {
		}
	}
	return all
}

// sayDoneTo says some of it to one peer, and returns whether there is more.
func (p *Peers) sayDoneTo(ctx context.Context, peer string, all *bool) bool {
	p.mu.Lock()
	ids := p.archived[peer]
	ids = slices.Clone(ids[:min(len(ids), maxDone)])
	address := p.gateway[peer].Status.Replica
	if len(ids) == 0 {
		delete(p.archived, peer)
	}
	p.mu.Unlock()
	if len(ids) == 0 {
		return false
	}
	err := errors.New("its address is unknown")
	if body, _ := json.Marshal(ids); address != "" {
		var r *http.Request
		r, err = http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+donePath+p.cfg.Gateway, bytes.NewReader(body))
		if err == nil {
			err = p.do(r, peer)
		}
	}
	if err != nil {
		p.cfg.Logger.Debug("cannot notify a peer of archived objects", "peer", peer, "error", err)
		*all = false
		return false
	}
	p.mu.Lock()
	p.archived[peer] = p.archived[peer][len(ids):]
	p.mu.Unlock()
	return true
}

// Owner returns what is known of a gateway, and false while nothing can be.
func (p *Peers) Owner(name string) (Owner, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		return Owner{}, false
	}
	s := p.gateway[name]
	at := s.At
	if at.Before(p.since) {
		at = p.since
	}
	o := Owner{Silent: time.Since(at)}
	if sp := s.Status.Spool; sp != nil && sp.Oldest != nil {
		o.SpoolSince = *sp.Oldest
	}
	return o, true
}

// save keeps the known peers for the next start.
func (p *Peers) save() error {
	p.mu.Lock()
	b, err := json.Marshal(p.gateway)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p.cfg.File), 0o750); err != nil {
		return err
	}
	return durable.Replace(p.cfg.File, b, 0o640)
}
