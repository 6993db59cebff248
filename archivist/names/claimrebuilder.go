// SPDX-License-Identifier: Apache-2.0

// Package names rebuilds the claims of names from the manifests after the bucket that has them was
// lost.
package names

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/nameclaims"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// lookInterval is how often the bucket is looked at: it may be lost at any time.
	lookInterval = 5 * time.Second
	// callTimeout bounds what is asked of JetStream at a time.
	callTimeout = 10 * time.Second
	// batchVersions, and names that have them or are folders, are held in memory, at some 400 bytes each, and mergesAtOnce claims
	// are on their way to JetStream at one time.
	batchVersions = 8192
	mergesAtOnce  = 16
	// staleWait is how long a replica that does not know a claim yet is given.
	staleWait = 20 * time.Millisecond
	// progressInterval is how often the log says how far it is.
	progressInterval = 10 * time.Second
	// readBatch and readWait bound a read of the notices that no manifest lists yet.
	readBatch = 256
	readWait  = 500 * time.Millisecond
)

// ClaimRebuilderConfig says whose names.
type ClaimRebuilderConfig struct {
	holder.Base

	Metrics *Metrics
}

// ClaimRebuilder sees to it that all names which the archive lists have their claims: where
// wire.NamesListedKey is not in the bucket, it makes them from the manifests, and the key
// last. Nothing of it holds up the archive; what fails is logged and tried again.
type ClaimRebuilder struct {
	cfg ClaimRebuilderConfig
	kv  jetstream.KeyValue
	// batch are the names that are merged next, by the keys of their claims.
	batch    map[string]*listed
	versions int
	// Counts since the names were begun, and when the log said how far they are.
	named, made int64
	said        time.Time
}

// NewClaimRebuilder returns one; Run runs it while one lease lasts.
func NewClaimRebuilder(cfg ClaimRebuilderConfig) *ClaimRebuilder { return &ClaimRebuilder{cfg: cfg} }

// Run looks after the names until ctx ends. Errors: only ctx's.
func (l *ClaimRebuilder) Run(ctx context.Context) error {
	defer l.cfg.Metrics.complete.Set(0)
	for said := ""; ; {
		err := l.ensureClaims(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			said = ""
			l.cfg.Metrics.complete.Set(1)
		default:
			l.cfg.Metrics.complete.Set(0)
			if err.Error() != said {
				said = err.Error()
				l.cfg.Log.Warn("cannot compare the names that the archive lists with their claims now", "error", err)
			}
		}
		if !retry.Sleep(ctx, lookInterval) {
			return ctx.Err()
		}
	}
}

// ensureClaims makes the claims where the bucket does not say that they are whole.
func (l *ClaimRebuilder) ensureClaims(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	kv, err := l.cfg.JetStream.KeyValue(call, wire.NamesBucket(l.cfg.Site))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", wire.NamesBucket(l.cfg.Site), err)
	}
	l.kv = kv
	if whole, err := nameclaims.IsWhole(call, kv); err != nil || whole {
		return err
	}
	l.cfg.Metrics.complete.Set(0)
	return l.list(ctx)
}

// list makes the claims of all that the archive lists. Objects that are listed meanwhile were announced behind the
// cursor of the manifest's writer, which is read first.
func (l *ClaimRebuilder) list(ctx context.Context) error {
	begun := time.Now().UTC()
	l.batch, l.versions, l.named, l.made, l.said = map[string]*listed{}, 0, 0, 0, begun
	l.cfg.Log.Info("comparing the names that the archive lists with their claims", "site", l.cfg.Site)
	cursor, err := l.cursor(ctx)
	if err != nil {
		return err
	}
	for instrument, err := range manifest.Instruments(ctx, l.cfg.Store, l.cfg.Site) {
		if err == nil {
			err = l.instrument(ctx, instrument)
		}
		if err != nil {
			return fmt.Errorf("instrument %s: %w", instrument, err)
		}
	}
	if err := l.announced(ctx, cursor); err != nil {
		return err
	}
	if err := l.flush(ctx); err != nil {
		return err
	}
	value, err := wire.Encode(wire.NamesListed{At: begun})
	if err != nil {
		return err
	}
	if err := l.cfg.Lease.Check(); err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := l.kv.Put(call, wire.NamesListedKey, value); err != nil {
		return fmt.Errorf("write %s of %s: %w", wire.NamesListedKey, l.kv.Bucket(), err)
	}
	l.cfg.Log.Info("the names that the archive lists have their claims", "site", l.cfg.Site, "objects", l.named, "restored", l.made, "took", time.Since(begun))
	return nil
}

// instrument adds what the manifests list of an instrument, in any state: a name is not given again
// when its object was purged.
func (l *ClaimRebuilder) instrument(ctx context.Context, instrument string) error {
	for day, err := range manifest.Days(ctx, l.cfg.Store, l.cfg.Site, instrument) {
		if err != nil {
			return err
		}
		if _, err := wire.ParseDay(string(day)); err != nil {
			continue
		}
		for r, err := range manifest.Records(ctx, l.cfg.Store, l.cfg.Site, instrument, day) {
			if errors.Is(err, wire.ErrMalformed) {
				l.cfg.Log.Error("the manifest of a day cannot be read, and names may be missing: run substorm archive rebuild, then delete the key "+
					wire.NamesListedKey+" of the bucket "+l.kv.Bucket(), "instrument", instrument, "day", day, "error", err)
				break
			}
			if err == nil {
				err = l.add(ctx, instrument, r)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", day, err)
			}
		}
		l.progress(instrument, day)
	}
	return nil
}

func (l *ClaimRebuilder) progress(instrument string, day wire.Day) {
	if time.Since(l.said) < progressInterval {
		return
	}
	l.said = time.Now()
	l.cfg.Log.Info("the names are being compared", "instrument", instrument, "day", day, "objects", l.named, "restored", l.made)
}

// cursor is where the manifest's writer is: what was announced before is listed.
func (l *ClaimRebuilder) cursor(ctx context.Context) (wire.StreamCursor, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	bucket := wire.CursorBucket(l.cfg.Site)
	cursors, err := l.cfg.JetStream.KeyValue(ctx, bucket)
	if err != nil {
		return wire.StreamCursor{}, fmt.Errorf("bucket %s: %w", bucket, err)
	}
	data, err := stream.NewCell(l.cfg.JetStream, cursors, wire.NoticeCursorKey).Load(ctx)
	if err != nil || data == nil {
		return wire.StreamCursor{}, err
	}
	return wire.Decode[wire.StreamCursor](data)
}

// announced adds what is announced behind a cursor, and in no closed part.
func (l *ClaimRebuilder) announced(ctx context.Context, cursor wire.StreamCursor) error {
	name := wire.NoticeStream(l.cfg.Site)
	epoch, state, err := stream.Epoch(ctx, l.cfg.JetStream, name)
	if err != nil {
		return err
	}
	start := max(state.FirstSeq, 1)
	if cursor.Epoch == epoch {
		start = max(start, cursor.Next)
	}
	reader := stream.NewReader(l.cfg.JetStream, stream.ReaderConfig{Stream: name, Epoch: epoch, Subject: wire.NoticeSubjects(l.cfg.Site), Start: start})
	for next, end := reader.Position(); next <= state.LastSeq && !end; next, end = reader.Position() {
		messages, err := reader.Next(ctx, readBatch, readWait)
		if err != nil {
			return err
		}
		for _, m := range messages {
			n, err := wire.Decode[wire.Notice](m.Data)
			if err != nil || n.Site != l.cfg.Site || m.Header.Get(wire.HeaderRefilled) != "" {
				continue // the manifest's writer says what is wrong with it
			}
			if err := l.add(ctx, n.Instrument, n.Record); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *ClaimRebuilder) add(ctx context.Context, instrument string, r wire.Record) error {
	v, claimed := claimOf(l.cfg.Site, instrument, r)
	if !claimed {
		return nil
	}
	l.named++
	l.listed(instrument, r.Name).versions[v.Version] = v
	l.versions++
	for _, folder := range wire.NameFolders(r.Name) {
		l.listed(instrument, folder).folder = true
	}
	if l.versions+len(l.batch) < batchVersions {
		return nil
	}
	return l.flush(ctx)
}

// listed is a name of the batch.
func (l *ClaimRebuilder) listed(instrument, name string) *listed {
	key := wire.NameKey(instrument, name)
	entry := l.batch[key]
	if entry == nil {
		entry = &listed{instrument: instrument, name: name, versions: map[int]wire.NameVersion{}}
		l.batch[key] = entry
	}
	return entry
}

// flush merges the names of the batch into their claims.
func (l *ClaimRebuilder) flush(ctx context.Context) error {
	if err := l.cfg.Lease.Check(); err != nil {
		return err
	}
	made := make(chan struct{}, len(l.batch))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(mergesAtOnce)
	for key, name := range l.batch {
		group.Go(func() error {
			changed, err := l.merge(groupCtx, key, name)
			if changed {
				made <- struct{}{}
			}
			return err
		})
	}
	err := group.Wait()
	l.made += int64(len(made))
	l.cfg.Metrics.claims.Add(float64(len(made)))
	clear(l.batch)
	l.versions = 0
	return err
}

// merge writes a claim, again where a gateway changed it meanwhile.
func (l *ClaimRebuilder) merge(ctx context.Context, key string, name *listed) (changed bool, err error) {
	for {
		changed, err := l.tryMerge(ctx, key, name)
		if !nameclaims.IsTaken(err) {
			return changed && err == nil, err
		}
		if !retry.Sleep(ctx, staleWait) {
			return false, ctx.Err()
		}
	}
}

func (l *ClaimRebuilder) tryMerge(ctx context.Context, key string, name *listed) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var claim wire.NameClaim
	e, err := l.kv.Get(ctx, key)
	if err == nil {
		claim, err = wire.Decode[wire.NameClaim](e.Value())
		if err != nil || claim.Name != name.name {
			l.cfg.Log.Error("the claim of a name cannot be read, and is left alone", "instrument", name.instrument, "name", name.name, "entry", key, "error", err)
			return false, nil
		}
	} else if !errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, fmt.Errorf("claim of the name %q: %w", name.name, err)
	}
	merged, changed, conflicts := merge(l.cfg.Site, claim, name)
	if !changed {
		l.conflict(name, claim, conflicts)
		return false, nil
	}
	value, err := wire.Encode(merged)
	if err != nil {
		return false, err
	}
	if e == nil {
		_, err = l.kv.Create(ctx, key, value)
	} else {
		_, err = l.kv.Update(ctx, key, value, e.Revision())
	}
	if err != nil {
		return false, fmt.Errorf("claim of the name %q: %w", name.name, err)
	}
	l.conflict(name, merged, conflicts)
	return true, nil
}

// conflict logs versions that were claimed by other bytes than the archive lists: the bucket was
// lost, and a gateway that did not know it took the name.
func (l *ClaimRebuilder) conflict(name *listed, claim wire.NameClaim, conflicts []wire.NameVersion) {
	for _, v := range conflicts {
		l.cfg.Metrics.conflicts.Inc()
		l.cfg.Log.Error("a name is claimed by other bytes than the archive lists: the claim stays, and the listed object is found by its path and its day",
			"instrument", name.instrument, "name", name.name, "version", v.Version, "listed", v.Digest, "claimed", claim.Versions[v.Version-1].Digest)
	}
}
