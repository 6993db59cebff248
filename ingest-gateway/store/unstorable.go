// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/nats-io/nuid"

	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// unstorableTries is how often an object from the spool is tried that the store, which
// takes others, does not take. It is then put into quarantine, so that it holds none of the
// places of those that can be stored.
const unstorableTries = 10

// errUnstorable: the store takes others, and does not take the object.
var errUnstorable = errors.New("the store does not take the object")

// errScratch: the volume gave back other bytes than were written to it. There is no
// receipt, and the sender sends again.
var errScratch = errors.New("the bytes in scratch are not those received: the volume's disk may be failing")

// errRefusesAll: the store refuses whatever it is sent. That is a matter of the store, of
// what stands before it, or of the credentials.
var errRefusesAll = errors.New("the store refuses every object")

// tries judges what keeps an object from the spool from being stored.
type tries struct {
	archive *Archive
	refused int
	// taken is health.taken when the object was refused last.
	taken uint64
}

func (a *Archive) newTries() *tries { return &tries{archive: a, taken: a.health.taken.Load()} }

// judge returns err, or errUnstorable if another try is of no use. A try counts only if the store
// has taken another object since the one before: a store that refuses everything counts as away.
func (t *tries) judge(ctx context.Context, err error) error {
	if !isRefusal(err) {
		return err
	}
	if !t.archive.takesOthers(ctx, t.taken) {
		return fmt.Errorf("%w: %w", errRefusesAll, err)
	}
	t.taken = t.archive.health.taken.Load()
	if t.refused++; t.refused >= unstorableTries {
		return fmt.Errorf("%w: tried %d times: %w", errUnstorable, t.refused, err)
	}
	return err
}

// retry stores something from the spool, and tries until ctx ends. Say logs, once, what keeps it
// from being stored. Errors: those of final, errUnstorable, ctx's.
func (a *Archive) retry(ctx context.Context, store func() error, say func(error), final ...error) error {
	tried := a.newTries()
	for said := false; ; retry.Sleep(ctx, drainPause) {
		err := store()
		if err == nil || slices.ContainsFunc(final, func(f error) bool { return errors.Is(err, f) }) {
			return err
		}
		err = tried.judge(ctx, err)
		switch {
		case errors.Is(err, errUnstorable):
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case !said && !isAway(err):
			said = true
			say(err)
		}
	}
}

// isRefusal says whether an error may be caused by the object itself: not by its disk, a server
// that is away, an unreadable claim or manifest, or a caller that gave up.
func isRefusal(err error) bool {
	var disk *fs.PathError
	return !isAway(err) && !errors.As(err, &disk) && !errors.Is(err, spool.ErrCorrupt) && !errors.Is(err, stream.ErrUnavailable) &&
		!errors.Is(err, wire.ErrMalformed) && !errors.Is(err, wire.ErrNewerFormat) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// takesOthers says whether the store took an object since health.taken was before. If
// it took none, it is sent a small one.
func (a *Archive) takesOthers(ctx context.Context, before uint64) bool {
	if a.health.taken.Load() != before {
		return true
	}
	_, err, _ := a.probing.Do("", func() (any, error) { return nil, a.probe(ctx) })
	return err == nil
}

// probe stores an object outside the archive and removes it again.
func (a *Archive) probe(ctx context.Context) error {
	key := wire.StagingKey(a.cfg.Site, "_probe", nuid.Next())
	const body = "Does the store take this?\n"
	err := a.request(ctx, "put", int64(len(body)), func(ctx context.Context) error { // which may try again
		return a.cfg.Objects.Put(ctx, key, strings.NewReader(body), int64(len(body)), objectstore.PutOptions{CreateOnly: true})
	})
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	_ = a.cfg.Objects.Delete(clean, key) // what stays is found by the sweep
	return err
}

// verifyEntry compares a spooled object with what was written, and with what was
// received, before it is sent. Errors: spool.ErrCorrupt, the file system's.
func verifyEntry(e *spool.Entry) error {
	if err := e.Verify(); err != nil {
		return err
	}
	err := checkDigest(e)
	if errors.Is(err, spool.ErrCorrupt) {
		err = fmt.Errorf("%w: its bytes are not those received", err)
	}
	return err
}

// checkScratch compares bytes from scratch with what came from the network.
func checkScratch(body io.Reader, want wire.Digest) error {
	digest := sha256.New()
	if _, err := io.Copy(digest, body); err != nil {
		return fmt.Errorf("%w: %w", errScratch, err)
	}
	if got := wire.Digest(digest.Sum(nil)); got != want {
		return fmt.Errorf("%w: digest %s instead of %s", errScratch, got, want)
	}
	return nil
}
