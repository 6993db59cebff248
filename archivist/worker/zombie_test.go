// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// pause stops a process at its first manifest part, as SIGSTOP does: the part's request has left
// the lease's check behind and not yet reached the store, and nothing else of the process continues
// either.
type pause struct {
	paused  chan struct{} // closed at the pause
	goOn    chan struct{} // closed to continue
	arrived chan struct{} // closed when the part has reached the store
	once    sync.Once
}

func newPause() *pause {
	return &pause{paused: make(chan struct{}), goOn: make(chan struct{}), arrived: make(chan struct{})}
}

// gate holds callers while the process is paused.
func (p *pause) gate() {
	select {
	case <-p.paused:
		<-p.goOn
	default:
	}
}

type pausedStore struct {
	objectstore.Store
	p *pause
}

func (s pausedStore) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objectstore.PutOptions) error {
	first := false
	if strings.HasPrefix(key, "manifest/") {
		s.p.once.Do(func() { first = true })
	}
	if !first {
		s.p.gate()
		return s.Store.Put(ctx, key, body, size, opts)
	}
	close(s.p.paused)
	<-s.p.goOn
	defer close(s.p.arrived)
	return s.Store.Put(context.WithoutCancel(ctx), key, body, size, opts) // it had left already
}

func (s pausedStore) Delete(ctx context.Context, key string) error {
	s.p.gate()
	return s.Store.Delete(ctx, key)
}

type pausedJetStream struct {
	jetstream.JetStream
	p *pause
}

func (js pausedJetStream) PublishMsg(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	js.p.gate()
	return js.JetStream.PublishMsg(ctx, m, opts...)
}

func (js pausedJetStream) KeyValue(ctx context.Context, bucket string) (jetstream.KeyValue, error) {
	kv, err := js.JetStream.KeyValue(ctx, bucket)
	return pausedKeyValue{kv, js.p}, err
}

type pausedKeyValue struct {
	jetstream.KeyValue
	p *pause
}

func (kv pausedKeyValue) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	kv.p.gate()
	return kv.KeyValue.Update(ctx, key, value, revision)
}

func (kv pausedKeyValue) Create(ctx context.Context, key string, value []byte, opts ...jetstream.KVCreateOpt) (uint64, error) {
	kv.p.gate()
	return kv.KeyValue.Create(ctx, key, value, opts...)
}

func (kv pausedKeyValue) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	kv.p.gate()
	return kv.KeyValue.Put(ctx, key, value)
}

// beforeFirstPart does something at the moment at which a part is about to be put.
type beforeFirstPart struct {
	objectstore.Store
	once *sync.Once
	do   func()
}

func (s beforeFirstPart) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objectstore.PutOptions) error {
	if strings.HasPrefix(key, "manifest/") {
		s.once.Do(s.do)
	}
	return s.Store.Put(ctx, key, body, size, opts)
}

// An archivist that was stopped while a part was on its way, and continues after another took over,
// does no harm: neither when its part comes after the other's nor when it comes just before it.
func TestStoppedArchivist(t *testing.T) {
	s := start(t)
	for name, late := range map[string]bool{"late": true, "early": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := s.site(t, name)
			now := time.Now().UTC()
			var keys []string
			for i := range 5 {
				keys = append(keys, l.send(camera, now.Add(time.Duration(i)*time.Millisecond), fmt.Sprint("frame ", i)).Key)
			}
			duplicate := l.send(camera, now.Add(time.Second), "frame 0").Key

			p := newPause()
			stopped := l.config("a")
			stopped.JetStream, stopped.Store = pausedJetStream{l.js, p}, pausedStore{l.store, p}
			l.run(stopped)
			<-p.paused

			next := l.config("b")
			if !late {
				next.Store = beforeFirstPart{l.store, new(sync.Once), func() { close(p.goOn); <-p.arrived }}
			}
			l.run(next)
			l.await("b holds the lease", func() bool { return l.holder() == "b" })
			keys = append(keys, l.send(camera, now.Add(2*time.Second), "frame after the stop").Key)
			complete := func() bool { return len(l.listed(camera)) == 7 && len(l.stored(camera)) == 6 }
			l.await("b lists everything", complete)
			if late {
				close(p.goOn)
				<-p.arrived
			}
			l.await("a gave up", func() bool { return gauge(t, stopped, "substorm_archivist_failures_total") > 0 })
			keys = append(keys, l.send(camera, now.Add(3*time.Second), "the last frame").Key)
			l.await("the last is listed", func() bool { return len(l.listed(camera)) == 8 })
			want(t, "listed", sorted(keys...), l.keys(camera, wire.StateCurrent))
			want(t, "duplicates", []string{duplicate}, l.keys(camera, wire.StateDuplicate))
			want(t, "stored", sorted(keys...), slices.Sorted(slices.Values(l.stored(camera))))
		})
	}
}
