// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
)

// retryPause is between tries to read reports.
const retryPause = time.Second

// Follow reads what the pool's gateways report, until ctx ends. Connected says
// whether NATS answers.
func (p *Peers) Follow(ctx context.Context, js jetstream.JetStream, site string, connected func() bool) error {
	for ctx.Err() == nil {
		if err := p.follow(ctx, js, site, connected); err != nil {
			p.cfg.Logger.Debug("cannot read the reports of other gateways", "error", err)
		}
		p.setReading(false)
		retry.Sleep(ctx, retryPause)
	}
	return nil
}

func (p *Peers) follow(ctx context.Context, js jetstream.JetStream, site string, connected func() bool) error {
	kv, err := js.KeyValue(ctx, wire.StatusBucket(site))
	if err != nil {
		return err
	}
	watcher, err := kv.Watch(ctx, wire.GatewayStatusKey("*"))
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Stop() }() // it ends with the connection at the latest
	tick := time.NewTicker(retryPause)
	defer tick.Stop()
	live := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if !connected() {
				return nil
			}
		case e, open := <-watcher.Updates():
			switch {
			case !open:
				return nil
			case e == nil:
				live = true
				p.setReading(true)
			default:
				p.take(e, live)
			}
		}
	}
}

func (p *Peers) setReading(reads bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if reads != p.since.IsZero() {
		return
	}
	p.since = time.Time{}
	if reads {
		p.since = time.Now()
	}
}

func (p *Peers) take(e jetstream.KeyValueEntry, live bool) {
	_, name, ok := wire.ParseStatusKey(e.Key())
	if !ok || name == p.cfg.Gateway {
		return
	}
	if e.Operation() != jetstream.KeyValuePut {
		p.mu.Lock()
		delete(p.gateway, name)
		p.mu.Unlock()
		return
	}
	status, err := wire.Decode[wire.GatewayStatus](e.Value())
	if err != nil || status.Pool != p.cfg.Pool {
		return
	}
	at := time.Now()
	if !live {
		at = e.Created()
	}
	p.mu.Lock()
	before := p.gateway[name].Status
	p.gateway[name] = seen{status, at}
	p.mu.Unlock()
	if before.Replica != status.Replica || before.Node != status.Node || before.Draining != status.Draining {
		if err := p.save(); err != nil {
			p.cfg.Logger.Warn("cannot save the peers for the next start", "error", err)
		}
	}
}
