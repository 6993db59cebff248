// SPDX-License-Identifier: Apache-2.0

package store

// This file decides where an object goes, and does nothing else: Keep carries the decision out.

import "github.com/substorm/substorm/internal/wire"

// The values of acknowledge, as in the Instrument's spec.
const (
	storedOrSpooled = wire.AcknowledgeStoredOrSpooled
	spooledOnly     = wire.AcknowledgeSpooled
	replicated      = "Replicated"
)

// place is where an object goes.
type place string

const (
	nowhere place = ""
	// inPack: into the store, in a pack with others.
	inPack place = "pack"
	// byItself: into the store under its own key, in one request.
	byItself place = "itself"
	// inParts: into the store under its own key, where its parts are already.
	inParts place = "parts"
	// inSpool: into the spool on the volume.
	inSpool place = "spool"
	// inTwoSpools: into a peer's spool, and then into this one.
	inTwoSpools place = "peer+spool"
)

// isSpool says whether the object does not go to the store now.
func (p place) isSpool() bool { return p == inSpool || p == inTwoSpools }

// asking is how JetStream is asked for a name, or to take a notice.
type asking string

const (
	// patiently: for as long as objects may wait; nothing else may be done.
	patiently asking = "patiently"
	// briefly: for ShortWait, and then the spool keeps the question.
	briefly asking = "briefly"
	// later: the spool keeps the question; JetStream is not asked now.
	later asking = "later"
)

// facts are what the place of an object depends on.
type facts struct {
	acknowledge string
	named       bool
	// size of the object, and that up to which objects share packs, in bytes.
	size, packBelow int64
	// inMemory: nothing of it is in scratch.
	inMemory bool
	// sent is where parts of it are already: inParts, inSpool or nowhere.
	sent place
	// hasSpool: there is a spool; hasPeer: another gateway would keep a copy. Only the spool itself
	// knows whether it has space, when it is given the object.
	hasSpool, hasPeer bool
	// storeAway and streamAway: the last that was heard of the store, or of JetStream, is
	// that it does not answer.
	storeAway, streamAway bool
}

// decision says where an object goes.
type decision struct {
	// place is where it goes first.
	place place
	// otherwise is where it goes where the store, or JetStream asked for its name, does not
	// answer soon; nowhere: they get as long as objects may wait.
	otherwise place
	// atLast is where it goes where it gets nowhere else: then without a hurry.
	atLast place
	// claim is how its name is asked for, and notice how its notice is published.
	claim, notice asking
}

// decide says where an object goes.
func decide(f facts) decision {
	spool := inSpool
	if f.acknowledge == replicated {
		spool = inTwoSpools
	}
	var d decision
	if f.maySpool() && f.sent != inParts { // what the store has in parts is not here any more
		d.otherwise = spool
	}
	d.claim, d.notice = f.asks(d.otherwise != nowhere), f.asks(f.maySpool())
	switch {
	case f.sent == inSpool, d.otherwise != nowhere && (f.storeAway || f.acknowledge == spooledOnly):
		d.place = spool
	case f.sent == inParts:
		d.place = inParts
	case f.sharesPack() && f.inMemory: // bytes that were in scratch go to the store under their own digest
		d.place = inPack
	default:
		d.place = byItself
		if d.otherwise == inTwoSpools && !f.named {
			d.atLast = byItself // no peer has a copy: the receipt means Stored
		}
	}
	return d
}

// maySpool says whether the receipt may mean that the object is in the spool. Replicated
// needs a second gateway's spool, and acts as Stored while there is none.
func (f facts) maySpool() bool {
	switch f.acknowledge {
	case storedOrSpooled, spooledOnly:
		return f.hasSpool
	case replicated:
		return f.hasSpool && f.hasPeer
	default:
		return false
	}
}

// sharesPack says whether the object belongs into a pack, now or on its way from the spool.
func (f facts) sharesPack() bool {
	return !f.named && f.sent == nowhere && f.size > 0 && f.size <= f.packBelow
}

func (f facts) asks(maySpool bool) asking {
	switch {
	case !maySpool:
		return patiently
	case f.streamAway:
		return later
	default:
		return briefly
	}
}

// facts returns what the decision goes by, as it is now.
func (o *Object) facts() facts {
	cfg := &o.archive.cfg
	f := facts{
		acknowledge: o.instrument.Acknowledge, named: o.name != "", size: o.size, packBelow: o.instrument.PackBelow,
		inMemory: o.buffer.InMemory(), hasSpool: cfg.Spool != nil,
		storeAway: o.archive.health.away(), streamAway: o.archive.streamAway.Load(),
	}
	if f.acknowledge == replicated {
		f.hasPeer = cfg.Copier != nil && cfg.Copier.Peer() != ""
	}
	if o.parts != nil {
		f.sent = inParts
	} else if len(o.spooled) > 0 {
		f.sent = inSpool
	}
	return f
}
