// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"container/list"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// hotShare is the part of the memory that one object may take.
	hotShare = 4
	// againShare is the part of the memory that what was asked for more than once keeps.
	againShare = 3. / 4
	// loadTimeout is how long an object may take from the store: the request that started the load
	// may be gone, and others wait too.
	loadTimeout = time.Minute
)

// errNoSpace: the object does not fit beside those that are being sent. It is sent
// without being held.
var errNoSpace = errors.New("no memory is left for the object")

// hot holds objects that were requested, by the digests with which their bytes were compared once.
// Objects that are being sent count too, so its memory is bounded.
type hot struct {
	store objectstore.Store
	limit int64
	asked *prometheus.CounterVec

	mu      sync.Mutex
	used    int64
	held    map[wire.Digest]*held
	loading map[wire.Digest]*loading
	// once and again are the objects that are not being sent to any client, by how often they were
	// requested; the one that was requested last is in front. Objects that were requested once are
	// evicted first: a robot that reads everything displaces only objects that it has read itself.
	// But the others keep at most againShare of the memory: the rest lets new objects stay until
	// they are requested again.
	once, again list.List
	// kept are the bytes of again.
	kept int64
}

// held is one object.
type held struct {
	digest wire.Digest
	data   []byte
	// users is how many requests are sending it; without any it is in the list among.
	users int
	among *list.List
	place *list.Element
	// again: it was asked for more than once.
	again bool
}

// loading is an object on its way. Done is closed when it is there, or err is set.
type loading struct {
	waiting int
	done    chan struct{}
	held    *held
	err     error
}

func newHot(store objectstore.Store, limit int64, metrics prometheus.Registerer) *hot {
	h := &hot{
		store: store, limit: limit, held: map[wire.Digest]*held{}, loading: map[wire.Digest]*loading{},
		asked: metric.Counters(metrics, "substorm_archive_hot_total",
			"Objects that were sent from memory (Hit), fetched into it (Miss), or did not fit (NoSpace).", "result"),
	}
	metric.GaugeFunc(metrics, "substorm_archive_hot_bytes", "Bytes of objects that are held in memory, and of encoders at work.", func() float64 {
		h.mu.Lock()
		defer h.mu.Unlock()
		return float64(h.used)
	})
	return h
}

// get returns an object's bytes, compared with its digest; they must not be changed.
// Call release when they are sent. Errors: errNoSpace, objectpath.ErrDamaged, those of
// objectstore and of ctx.
func (h *hot) get(ctx context.Context, r *wire.Record) (*held, error) {
	h.mu.Lock()
	if o := h.held[r.Digest]; o != nil {
		o.again = true
		h.use(o, 1)
		h.mu.Unlock()
		h.asked.WithLabelValues("Hit").Inc()
		return o, nil
	}
	l := h.loading[r.Digest]
	if l == nil {
		if r.Size > h.limit/hotShare || !h.reserve(r.Size) {
			h.mu.Unlock()
			h.asked.WithLabelValues("NoSpace").Inc()
			return nil, errNoSpace
		}
		l = &loading{done: make(chan struct{})}
		h.loading[r.Digest] = l
		go h.load(context.WithoutCancel(ctx), *r, l)
	}
	l.waiting++
	h.mu.Unlock()
	h.asked.WithLabelValues("Miss").Inc()
	return h.await(ctx, l)
}

func (h *hot) await(ctx context.Context, l *loading) (*held, error) {
	select {
	case <-l.done:
		return l.held, l.err
	case <-ctx.Done():
	}
	h.mu.Lock()
	l.waiting--
	there := l.held
	h.mu.Unlock()
	if there != nil {
		h.release(there)
	}
	return nil, ctx.Err()
}

// use counts users in. The caller holds h.mu.
func (h *hot) use(o *held, users int) {
	if o.users == 0 && users > 0 && o.place != nil {
		h.wake(o)
	}
	o.users += users
}

// release is the end of a get.
func (h *hot) release(o *held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o.users--; o.users == 0 {
		h.rest(o)
	}
}

// rest puts an object on the list of objects that are not being sent. The caller holds h.mu.
func (h *hot) rest(o *held) {
	o.among = &h.once
	if o.again {
		o.among = &h.again
		h.kept += int64(len(o.data))
	}
	o.place = o.among.PushFront(o)
}

// wake takes an object from there. The caller holds h.mu.
func (h *hot) wake(o *held) {
	if o.among == &h.again {
		h.kept -= int64(len(o.data))
	}
	o.among.Remove(o.place)
	o.among, o.place = nil, nil
}

// reserve makes space by evicting objects that are not being sent, if that suffices. The caller
// holds h.mu.
func (h *hot) reserve(size int64) bool {
	for h.used+size > h.limit {
		from := &h.once
		if from.Len() == 0 || h.kept > int64(againShare*float64(h.limit)) {
			from = &h.again
		}
		oldest := from.Back()
		if oldest == nil {
			return false
		}
		o := oldest.Value.(*held)
		h.wake(o)
		delete(h.held, o.digest)
		h.used -= int64(len(o.data))
	}
	h.used += size
	return true
}

// borrow takes memory for another purpose than an object, if it is available. Call repay when it is
// not needed any more.
func (h *hot) borrow(size int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reserve(size)
}

func (h *hot) repay(size int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.used -= size
}

// load fetches an object for the requests that wait.
func (h *hot) load(ctx context.Context, r wire.Record, l *loading) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	data, err := fetch(ctx, h.store, r)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.loading, r.Digest)
	if err != nil {
		h.used -= r.Size
		l.err = err
	} else {
		l.held = &held{digest: r.Digest, data: data, again: l.waiting > 1}
		h.held[r.Digest] = l.held
		if h.use(l.held, l.waiting); l.waiting == 0 {
			h.rest(l.held)
		}
	}
	close(l.done)
}

// fetch reads an object that fits in memory. Errors: as get.
func fetch(ctx context.Context, store objectstore.Store, r wire.Record) ([]byte, error) {
	body, err := objectpath.Open(ctx, store, r)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data := make([]byte, r.Size)
	if _, err := io.ReadFull(body, data); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(body, make([]byte, 1)); !errors.Is(err, io.EOF) {
		return nil, err // compared at the end
	}
	return data, nil
}
