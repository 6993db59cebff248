// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
)

// permanent are refusals that another try cannot change.
var permanent = map[wire.Cause]bool{
	wire.CauseObjectTooLarge: true, wire.CauseUnknownSource: true, wire.CauseRetired: true, wire.CauseEmpty: true,
	wire.CauseTruncated: true, wire.CauseNameConflict: true, wire.CauseBadRequest: true, wire.CauseBadToken: true,
	wire.CauseWrongProtocol: true,
}

// advice is what to do about a refusal.
var advice = map[wire.Cause]string{
	wire.CauseObjectTooLarge: "send smaller objects or raise spec.limits.maxObjectSize of the Instrument",
	wire.CauseUnknownSource:  "no Instrument takes data from this address on this port: compare spec.listeners with the address and port you send from and to (--from chooses it)",
	wire.CauseRetired:        "the Instrument is retired: set spec.state to Active to receive again",
	wire.CauseEmpty:          "an object has at least one byte",
	wire.CauseTruncated:      "tcp.framing of the Instrument is LengthPrefixed, it seems: use --framing length-prefixed",
	wire.CauseWrongProtocol: "the object begins as an HTTP request or a TLS hello does: " +
		"if it is an observation, set archive.mediaType of the Instrument to message/http, or tcp.expect.magic to what its objects begin with",
	wire.CauseTooManyConnections: "lower --parallel or raise spec.limits.maxConnections of the Instrument",
	wire.CauseStalled:            "the link is too slow for tcp.idleTimeout of the Instrument: raise it",
	wire.CauseTooOld:             "the link is too slow for tcp.maxAge of the Instrument: raise it",
	wire.CauseDraining:           "the gateway is stopping: name more than one server",
	wire.CauseStoreUnavailable:   "the Site's object store does not answer: see kubectl describe site",
	wire.CauseStreamUnavailable:  "the Site's JetStream does not answer: see kubectl describe site",
	wire.CauseStreamFull:         "the Site's stream is full: see kubectl describe site",
}

// Pauses between rounds over all addresses.
const (
	firstPause = 250 * time.Millisecond
	maxPause   = 20 * time.Second
)

// delivery sends objects until they are received, refused for good, or given up.
type delivery struct {
	// attempt sends an object to an address once.
	attempt func(ctx context.Context, address string, it item, p *pulse) verdict
	roster  *roster
	// hedge is when an object is tried elsewhere too.
	hedge       hedge
	giveUpAfter time.Duration
	// outage: once all servers have been silent for giveUpAfter, each object
	// that is left gets one round only.
	outage outage
	// again is called before an object is sent another time.
	again func(it item, address string, err error)
}

func newDelivery(attempt func(context.Context, string, item, *pulse) verdict, addresses []string, hedgeAfter time.Duration) *delivery {
	return &delivery{
		attempt: attempt, roster: newRoster(addresses), hedge: hedge{after: hedgeAfter},
		again: func(item, string, error) {}, // Result.Tries has the count
	}
}

// deliver sends one object.
func (d *delivery) deliver(ctx context.Context, it item) Result {
	begin := time.Now()
	res := Result{Name: it.name, Outcome: Unsent}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		res.progress = false
		if d.round(ctx, it, begin, &res) || ctx.Err() != nil || max(time.Since(begin), d.outage.length()) >= d.giveUpAfter {
			return res
		}
		if res.progress { // it is not tried in vain
			begin, pause = time.Now(), firstPause
		}
		wait := pause/2 + rand.N(pause/2) // so that senders that failed together do not come back together
		if !retry.Sleep(ctx, min(wait, d.giveUpAfter-time.Since(begin))) {
			return res
		}
	}
}

// take notes a verdict and returns true where it is final.
func (d *delivery) take(res *Result, address string, v verdict) bool {
	res.Server = address
	res.progress = res.progress || v.progress
	if v.whole {
		res.SHA256, res.Bytes = v.digest.String(), v.bytes
	}
	if v.receipted || v.refused != "" {
		d.outage.end()
	}
	switch {
	case v.receipted:
		d.roster.worked(address)
		now := time.Now().UTC()
		res.Outcome, res.ReceiptedAt, res.Cause, res.Error = Received, &now, "", ""
		return true
	case v.local:
		res.Error, res.Server = v.err.Error(), ""
		return true
	}
	d.explain(res, v)
	switch {
	case permanent[v.refused]:
		d.roster.worked(address)
		return true
	case v.wait > 0:
		d.roster.hold(address, v.wait)
	default:
		d.roster.failed(address)
	}
	if v.refused == "" {
		d.outage.extend()
	}
	return false
}

// explain notes why an object has no receipt.
func (d *delivery) explain(res *Result, v verdict) {
	res.Error = v.err.Error()
	if v.refused != "" {
		res.Cause = v.refused
		if hint, ok := advice[v.refused]; ok && !v.advised {
			res.Error += ": " + hint
		}
	}
	switch {
	case v.refused != "" && res.Outcome != Unknown:
		res.Outcome = Refused
	case v.whole && v.refused == "":
		res.Outcome = Unknown // and stays so: an earlier try may have been stored
	}
}

// outage measures how long no server has said a word. A pause in which nothing
// was tried ends it.
type outage struct {
	mu          sync.Mutex
	since, last time.Time
}

// outageGap is longer than any pause between tries.
const outageGap = 2 * time.Minute

func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.since, o.last = time.Time{}, time.Time{}
}

func (o *outage) extend() {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.since.IsZero() || now.Sub(o.last) > outageGap {
		o.since = now
	}
	o.last = now
}

func (o *outage) length() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last.Sub(o.since)
}
