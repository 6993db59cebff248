// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/substorm/substorm/ingest-gateway/intake/memory"
	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
)

// maxCopies bounds what is kept for one owner: each takes some 150 bytes of memory.
const maxCopies = 1 << 18

// LogConfig says where copies are stored.
type LogConfig struct {
	// Dir holds a folder for each owner.
	Dir string
	// Size bounds the folders together, in bytes.
	Size int64
	// Pool holds what arrives. It must be one of its own: two gateways whose
	// objects wait for each other's memory would wait for ever.
	Pool   *memory.Pool
	Logger *slog.Logger
}

// Log keeps copies of other gateways' spools. Its methods may be called from
// many goroutines.
type Log struct {
	cfg LogConfig

	mu     sync.Mutex
	owners map[string]*owner
	closed bool
}

// owner is one gateway whose copies are kept.
type owner struct {
	name  string
	spool *spool.Spool

	mu     sync.Mutex
	copies map[[16]byte]copied
	// news is closed when something was added to copies.
	news chan struct{}
	// all of what the spool held when it was opened is in copies.
	indexed chan struct{}
	stop    context.CancelFunc
}

// copied is where a copy is, and when its object was received.
type copied struct {
	ref        spool.Ref
	receivedAt time.Time
	// busy while it is being drained.
	busy bool
}

func key(id string) (k [16]byte) {
	sum := sha256.Sum256([]byte(id))
	copy(k[:], sum[:])
	return k
}

// OpenLog reads what earlier incarnations kept. Errors: those of spool.Open.
func OpenLog(cfg LogConfig) (*Log, error) {
	l := &Log{cfg: cfg, owners: map[string]*owner{}}
	if err := os.MkdirAll(cfg.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("replica: %w", err)
	}
	entries, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("replica: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() && label.MatchString(e.Name()) {
			if _, err := l.owner(e.Name()); err != nil {
				_ = l.Close()
				return nil, err
			}
		}
	}
	return l, nil
}

// owner returns an owner's log, and makes it if there is none.
func (l *Log) owner(name string) (*owner, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, spool.ErrClosed
	}
	if o := l.owners[name]; o != nil {
		return o, nil
	}
	s, err := spool.Open(spool.Config{Dir: filepath.Join(l.cfg.Dir, name), Size: l.cfg.Size, Logger: l.cfg.Logger.With("copiesOf", name)})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	o := &owner{name: name, spool: s, copies: map[[16]byte]copied{}, news: make(chan struct{}), indexed: make(chan struct{}), stop: cancel}
	if s.Stats().Objects == 0 {
		close(o.indexed)
		go o.index(ctx, nil, l.cfg.Logger)
	} else {
		go o.index(ctx, o.indexed, l.cfg.Logger)
	}
	l.owners[name] = o
	return o, nil
}

// index notes the places of copies, as they come.
func (o *owner) index(ctx context.Context, indexed chan struct{}, log *slog.Logger) {
	before := o.spool.Stats().Objects
	for {
		if before <= 0 && indexed != nil {
			close(indexed)
			indexed = nil
		}
		e, err := o.spool.Next(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, spool.ErrClosed):
			return
		case err != nil:
			log.Error("copies of another gateway's spool cannot be read", "owner", o.name, "error", err)
			if !retry.Sleep(ctx, time.Second) {
				return
			}
			continue
		}
		before--
		if o.quarantineUnfit(e, log) {
			continue
		}
		k := key(e.Notice.ID)
		o.mu.Lock()
		_, twice := o.copies[k]
		if !twice {
			o.copies[k] = copied{ref: e.Ref(), receivedAt: e.Notice.ReceivedAt}
			close(o.news)
			o.news = make(chan struct{})
		}
		o.mu.Unlock()
		if twice {
			_ = o.spool.Done(e)
		}
	}
}

// quarantineUnfit puts a copy into quarantine that a power cut left without all of its bytes: its owner,
// which has no answer, sends it once more.
func (o *owner) quarantineUnfit(e *spool.Entry, log *slog.Logger) bool {
	if !e.Unsure() {
		return false
	}
	err := e.Verify()
	if !errors.Is(err, spool.ErrCorrupt) {
		return false
	}
	if err := e.Quarantine(err); err != nil {
		log.Error("cannot move a corrupt copy to quarantine: it stays among the others", "owner", o.name, "error", err)
	}
	return true
}

// has says whether there is a copy of an id, and what is closed when there are more.
func (o *owner) has(id string) (bool, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.copies[key(id)]
	return ok, o.news
}

// awaitIndexed waits until a copy that is on the disk is in copies: its owner may
// say at once that it is archived.
func (o *owner) awaitIndexed(ctx context.Context, id string) error {
	for {
		ok, more := o.has(id)
		if ok {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Keep reads an object and returns once it is on the disk. Body is the object's bytes, all of which
// must come. Errors: spool.ErrFull, wire.ErrMalformed if they are not what the notice says, ctx's,
// or the file system's.
func (l *Log) Keep(ctx context.Context, name string, n wire.Notice, body io.Reader) error {
	o, err := l.owner(name)
	if err != nil {
		return err
	}
	if ok, _ := o.has(n.ID); ok {
		return nil // the answer to an earlier try was lost
	}
	if used, copies := l.used(), o.spool.Stats().Objects; used+n.Size > l.cfg.Size || copies >= maxCopies {
		return fmt.Errorf("%w: copies take %d of %d bytes, %d are of %s", spool.ErrFull, used, l.cfg.Size, copies, name)
	}
	r := receiver{log: l, spool: o.spool, digest: sha256.New()}
	defer r.release()
	if err := r.read(ctx, body); err != nil {
		return err
	}
	if r.size != n.Size || wire.Digest(r.digest.Sum(nil)) != n.Digest {
		return fmt.Errorf("%d bytes of %s are not what its notice says: %w", r.size, n.ID, wire.ErrMalformed)
	}
	if err := r.commit(n); err != nil {
		return err
	}
	return o.awaitIndexed(ctx, n.ID)
}

func (l *Log) used() (sum int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.owners {
		sum += o.spool.Stats().Used
	}
	return sum
}

// Done forgets copies whose objects are archived.
func (l *Log) Done(name string, ids []string) error {
	o, err := l.owner(name)
	if err != nil {
		return err
	}
	<-o.indexed
	for _, id := range ids {
		k := key(id)
		o.mu.Lock()
		c, ok := o.copies[k]
		if ok && !c.busy {
			delete(o.copies, k)
		}
		o.mu.Unlock()
		if !ok || c.busy { // the caller that is about to drain it finds it there
			continue
		}
		if err := o.done(c); err != nil {
			return err
		}
	}
	return nil
}

func (o *owner) done(c copied) error {
	e, err := o.spool.At(c.ref)
	if err != nil {
		return err
	}
	return o.spool.Done(e)
}

// Status is what is kept, by owner; owners of whom nothing is are left out.
func (l *Log) Status() []wire.CopiesStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []wire.CopiesStatus
	for _, o := range l.owners {
		st := o.spool.Stats()
		if st.Objects == 0 {
			continue
		}
		c := wire.CopiesStatus{Owner: o.name, Objects: st.Objects, Bytes: st.Bytes}
		if !st.Oldest.IsZero() {
			c.Oldest = &st.Oldest
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b wire.CopiesStatus) int { return cmp.Compare(a.Owner, b.Owner) })
	return all
}

// Close commits what is queued. The copies stay on the volume.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	var errs []error
	for _, o := range l.owners {
		o.stop()
		errs = append(errs, o.spool.Close())
	}
	return errors.Join(errs...)
}
