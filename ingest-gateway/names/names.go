// SPDX-License-Identifier: Apache-2.0

// Package names claims the names that senders give their objects, in the key-value bucket of the
// Site that all gateways share: the first claim has the name.
package names

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/nameclaims"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
)

// ErrConflict says that other bytes have the name, or, with a nameclaims.FolderError, that it would be a folder, too.
var ErrConflict = errors.New("another object has this name")

// errUnlisted says that it is unknown yet whether a name is free.
var errUnlisted = errors.New("the archivist has not yet claimed all names that the archive lists")

const (
	// marks is how many names wait to be marked as announced; beyond, a name is
	// not marked, and a duplicate of its object costs more.
	marks = 4096
	// markTimeout bounds one mark.
	markTimeout = 10 * time.Second
	// listedWait is between looks whether all claims are there.
	listedWait = 100 * time.Millisecond
	// reads and readRetry are what JetStream is given to answer, as a publication is.
	reads     = 3
	readRetry = 250 * time.Millisecond
)

// Config says whose names.
type Config struct {
	Site      string
	JetStream jetstream.JetStream
	// Objects returns the names of objects that claimed none, such as imports; nil: there are none.
	Objects objectstore.Store
	Logger  *slog.Logger
}

// Names claims names. Its methods may be called from many goroutines.
type Names struct {
	cfg     Config
	marks   chan mark
	kv      atomic.Pointer[jetstream.KeyValue]
	folders nameclaims.Folders
}

// mark is what was announced under a name.
type mark struct {
	instrument, name string
	version          int
	receivedAt       time.Time
	// gateway and incarnation that received it.
	gateway, incarnation string
}

// New returns Names; Run marks what is announced.
func New(cfg Config) *Names {
	n := &Names{cfg: cfg, marks: make(chan mark, marks)}
	if cfg.Objects != nil {
		n.folders.IsObject = n.isObject
	}
	return n
}

// isObject says whether there is an object under the key of a name.
func (n *Names) isObject(ctx context.Context, instrument, name string) (bool, error) {
	_, err := n.cfg.Objects.Head(ctx, wire.NamedKey(n.cfg.Site, instrument, name, 1))
	if errors.Is(err, objectstore.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Wanted is an object that wants a name.
type Wanted struct {
	Instrument, Name string
	Digest           wire.Digest
	Size             int64
	ReceivedAt       time.Time
	// Gateway and Incarnation that received it.
	Gateway, Incarnation string
	// KeepVersions: it becomes the next version where another has the name.
	KeepVersions bool
	// Receipted: it was received while names could not be claimed, and is not refused for a conflict that was
	// found: it has the name even if that is a folder too, or is in an object.
	Receipted bool
	// Expired is the last version whose bytes are gone because their time is over: an object that
	// is equal to it, or to a version before, is not a duplicate but the next version.
	Expired int
}

// Held is the version of a name that has the wanted digest.
type Held struct {
	wire.NameVersion
	// Supersedes is the ID of the version before; empty for the first.
	Supersedes string
	// Own: it was the wanted object, in this call or an earlier one, that claimed
	// the version; otherwise one that is equal to it did.
	Own bool
}

// Claim gives the name to the object, or says which equal object has it. The folders of the name are claimed first.
// Errors: ErrConflict, stream.ErrUnavailable if JetStream does not answer or lost claims are not rebuilt yet,
// wire.ErrMalformed, wire.ErrNewerFormat.
func (n *Names) Claim(ctx context.Context, w Wanted) (Held, error) {
	kv, err := n.bucket(ctx)
	if err != nil {
		return Held{}, err
	}
	key := wire.NameKey(w.Instrument, w.Name)
	if held, found, err := n.awaitListed(ctx, kv, w); found || err != nil {
		return held, err
	}
	if err := n.folders.Claim(ctx, kv, w.Instrument, w.Name, w.Receipted); err != nil {
		return n.heldAlready(ctx, w, err)
	}
	claim := n.with(wire.NameClaim{Name: w.Name}, w)
	value, err := wire.Encode(claim)
	if err != nil {
		return Held{}, err
	}
	if _, err = kv.Create(ctx, key, value); err == nil {
		first, _ := claim.Latest()
		return Held{NameVersion: first, Own: true}, nil
	}
	if !nameclaims.IsTaken(err) {
		return Held{}, nameclaims.Unavailable(w.Name, err)
	}
	for {
		if held, done, err := n.join(ctx, kv, key, w); done || err != nil {
			return held, err
		}
	}
}

// awaitListed waits until the bucket says that all names which the archive lists have their claims:
// before that a name without one may have been given long ago, and is not given again. A name that
// is claimed already is found at once.
func (n *Names) awaitListed(ctx context.Context, kv jetstream.KeyValue, w Wanted) (held Held, found bool, err error) {
	for tries := 1; ; {
		whole, err := nameclaims.IsWhole(ctx, kv)
		if err != nil && (tries == reads || !retry.Sleep(ctx, readRetry)) {
			return Held{}, false, nameclaims.Unavailable(w.Name, err)
		}
		if err != nil {
			tries++
			continue
		}
		if whole {
			return Held{}, false, nil
		}
		n.folders.Forget()
		claim, there, err := n.Lookup(ctx, w.Instrument, w.Name)
		if err != nil {
			return Held{}, false, err
		}
		if held, found := w.heldBy(claim); there && found {
			return held, true, nil
		}
		if !retry.Sleep(ctx, listedWait) {
			return Held{}, false, nameclaims.Unavailable(w.Name, errUnlisted)
		}
	}
}

// heldBy returns the version of a claim that has the digest of the wanted object.
func (w Wanted) heldBy(c wire.NameClaim) (Held, bool) {
	v, found := c.Find(w.Digest)
	if !found || v.Version <= w.Expired {
		return Held{}, false
	}
	own := v.Gateway == w.Gateway && v.Incarnation == w.Incarnation && v.ReceivedAt.Equal(w.ReceivedAt)
	return Held{v, supersedes(c, v), own}, true
}

// join looks up the version that has the name, and adds one if versions are kept. Done is false if
// another gateway changed the claim meanwhile.
func (n *Names) join(ctx context.Context, kv jetstream.KeyValue, key string, w Wanted) (held Held, done bool, err error) {
	claim, revision, err := nameclaims.Read(ctx, kv, key)
	if err != nil {
		return Held{}, false, err
	}
	if claim.Name != w.Name {
		return Held{}, false, fmt.Errorf("the claim of name %q holds name %q: %w", w.Name, claim.Name, wire.ErrMalformed)
	}
	if held, found := w.heldBy(claim); found {
		return held, true, nil
	}
	latest, named := claim.Latest()
	if !named && !w.Receipted {
		return Held{}, false, fmt.Errorf("%w: %w", ErrConflict, &nameclaims.FolderError{Instrument: w.Instrument, Name: w.Name, Both: w.Name})
	}
	if named && !w.KeepVersions && len(claim.Versions) != w.Expired {
		return Held{NameVersion: latest}, false, fmt.Errorf("name %q of instrument %s: %w", w.Name, w.Instrument, ErrConflict)
	}
	claim = n.with(claim, w)
	v, _ := claim.Latest()
	value, err := wire.Encode(claim)
	if err != nil {
		return Held{}, false, err
	}
	if _, err = kv.Update(ctx, key, value, revision); err == nil {
		return Held{v, supersedes(claim, v), true}, true, nil
	}
	if nameclaims.IsTaken(err) {
		return Held{}, false, nil
	}
	return Held{}, false, nameclaims.Unavailable(w.Name, err)
}

// supersedes is the version before one, past those that no object has, which have no digest.
func supersedes(c wire.NameClaim, v wire.NameVersion) string {
	for i := v.Version - 2; i >= 0; i-- {
		if before := c.Versions[i]; before.Digest != (wire.Digest{}) {
			return before.Key
		}
	}
	return ""
}

// with adds the version of a wanted object to a claim. The first version of an object that would be refused but for its receipt is version
// 2, so that no key is below the key of another object: some S3 servers do not list such keys.
func (n *Names) with(c wire.NameClaim, w Wanted) wire.NameClaim {
	if len(c.Versions) == 0 && w.Receipted {
		c.Versions = append(c.Versions, wire.NameVersion{Version: 1, Key: wire.NamedKey(n.cfg.Site, w.Instrument, w.Name, 1)})
	}
	c.Versions = append(c.Versions, n.version(w, len(c.Versions)+1))
	return c
}

func (n *Names) version(w Wanted, number int) wire.NameVersion {
	return wire.NameVersion{
		Version: number, Digest: w.Digest, Size: w.Size, Key: wire.NamedKey(n.cfg.Site, w.Instrument, w.Name, number),
		ReceivedAt: w.ReceivedAt, Gateway: w.Gateway, Incarnation: w.Incarnation,
	}
}

// Lookup returns the claim of a name; false if it has none. Errors: as Claim's, but for
// ErrConflict.
func (n *Names) Lookup(ctx context.Context, instrument, name string) (wire.NameClaim, bool, error) {
	kv, err := n.bucket(ctx)
	if err != nil {
		return wire.NameClaim{}, false, err
	}
	e, err := kv.Get(ctx, wire.NameKey(instrument, name))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return wire.NameClaim{}, false, nil
	}
	if err != nil {
		return wire.NameClaim{}, false, nameclaims.Unavailable(name, err)
	}
	c, err := wire.Decode[wire.NameClaim](e.Value())
	return c, err == nil, err
}

func (n *Names) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	if kv := n.kv.Load(); kv != nil {
		return *kv, nil
	}
	kv, err := n.cfg.JetStream.KeyValue(ctx, wire.NamesBucket(n.cfg.Site))
	if err != nil {
		return nil, nameclaims.Unavailable("bucket "+wire.NamesBucket(n.cfg.Site), err)
	}
	n.kv.Store(&kv)
	return kv, nil
}

// heldAlready returns the version that an equal object has, though the folders of its name could
// not be claimed: it was stored before folders had claims. Any other object gets the error.
func (n *Names) heldAlready(ctx context.Context, w Wanted, failed error) (Held, error) {
	if !errors.As(failed, new(*nameclaims.FolderError)) {
		return Held{}, failed
	}
	claim, there, err := n.Lookup(ctx, w.Instrument, w.Name)
	if err != nil {
		return Held{}, err
	}
	if held, found := w.heldBy(claim); there && found {
		return held, nil
	}
	return Held{}, fmt.Errorf("%w: %w", ErrConflict, failed)
}

// Announced notes, some time later, that an object is stored and announced under its
// name. It may be another than the one that claimed the name, equal to it and received
// later: the manifest of its day lists it.
func (n *Names) Announced(o wire.Notice) {
	select {
	case n.marks <- mark{o.Instrument, o.Name, max(o.Version, 1), o.ReceivedAt, o.Gateway, o.Incarnation}:
	default:
	}
}

// Run marks claims until ctx ends.
func (n *Names) Run(ctx context.Context) error {
	for {
		select {
		case m := <-n.marks:
			n.mark(ctx, m)
		case <-ctx.Done():
			return nil
		}
	}
}

// mark is best effort: without it a duplicate costs more, and is no more wrong.
func (n *Names) mark(ctx context.Context, m mark) {
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	err := n.tryMark(ctx, m)
	if err != nil && ctx.Err() == nil {
		n.cfg.Logger.Debug("cannot mark a name as announced", "instrument", m.instrument, "name", m.name, "error", err)
	}
}

func (n *Names) tryMark(ctx context.Context, m mark) error {
	kv, err := n.bucket(ctx)
	if err != nil {
		return err
	}
	key := wire.NameKey(m.instrument, m.name)
	for {
		claim, revision, err := nameclaims.Read(ctx, kv, key)
		if err != nil {
			return err
		}
		if m.version > len(claim.Versions) || claim.Versions[m.version-1].Announced {
			return nil
		}
		v := &claim.Versions[m.version-1]
		v.Announced, v.ReceivedAt, v.Gateway, v.Incarnation = true, m.receivedAt, m.gateway, m.incarnation
		value, err := wire.Encode(claim)
		if err != nil {
			return err
		}
		if _, err = kv.Update(ctx, key, value, revision); !nameclaims.IsTaken(err) {
			return err
		}
	}
}
