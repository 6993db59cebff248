// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

var errDead = errors.New("this process was killed")

// mortality kills a process at the n-th of its writes that match, before or after
// it took effect: from then on nothing of it reaches a server, and no answer
// reaches it.
type mortality struct {
	step  *regexp.Regexp
	n     int
	after bool
	// freed is called at the moment of death.
	freed func()

	mu    sync.Mutex
	count int
	dead  bool
}

// write is a step at which the process may die.
func (m *mortality) write(what string, effect func() error) error {
	m.mu.Lock()
	if m.dead {
		m.mu.Unlock()
		return errDead
	}
	dies := false
	if m.step.MatchString(what) {
		m.count++
		dies = m.count == m.n
	}
	m.dead = dies
	m.mu.Unlock()
	if !dies {
		return effect()
	}
	if m.after {
		_ = effect()
	}
	m.freed()
	return errDead
}

// alive is a call that changes nothing that counts.
func (m *mortality) alive() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errDead
	}
	return nil
}

type mortalStore struct {
	objectstore.Store
	m *mortality
}

func (s mortalStore) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objectstore.PutOptions) error {
	return s.m.write("put "+key, func() error { return s.Store.Put(ctx, key, body, size, opts) })
}

func (s mortalStore) Delete(ctx context.Context, key string) error {
	return s.m.write("delete "+key, func() error { return s.Store.Delete(ctx, key) })
}

type mortalJetStream struct {
	jetstream.JetStream
	m *mortality
}

func (js mortalJetStream) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt) (ack *jetstream.PubAck, err error) {
	err = js.m.write("publish "+msg.Header.Get(wire.HeaderID), func() error {
		ack, err = js.JetStream.PublishMsg(ctx, msg, opts...)
		return err
	})
	return ack, err
}

func (js mortalJetStream) PublishMsgAsync(msg *nats.Msg, opts ...jetstream.PublishOpt) (ack jetstream.PubAckFuture, err error) {
	err = js.m.write("publish "+msg.Header.Get(wire.HeaderID), func() error {
		ack, err = js.JetStream.PublishMsgAsync(msg, opts...)
		return err
	})
	return ack, err
}

func (js mortalJetStream) KeyValue(ctx context.Context, bucket string) (jetstream.KeyValue, error) {
	if err := js.m.alive(); err != nil {
		return nil, err
	}
	kv, err := js.JetStream.KeyValue(ctx, bucket)
	return mortalKeyValue{kv, js.m}, err
}

type mortalKeyValue struct {
	jetstream.KeyValue
	m *mortality
}

// do is a write; to the lease it is none that counts, but a dead process does not renew.
func (kv mortalKeyValue) do(key string, effect func() (uint64, error)) (revision uint64, err error) {
	if key == wire.ArchivistLease {
		if err := kv.m.alive(); err != nil {
			return 0, err
		}
		return effect()
	}
	err = kv.m.write(fmt.Sprintf("write %s of %s", key, kv.Bucket()), func() error {
		revision, err = effect()
		return err
	})
	return revision, err
}

func (kv mortalKeyValue) Create(ctx context.Context, key string, value []byte, opts ...jetstream.KVCreateOpt) (uint64, error) {
	return kv.do(key, func() (uint64, error) { return kv.KeyValue.Create(ctx, key, value, opts...) })
}

func (kv mortalKeyValue) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return kv.do(key, func() (uint64, error) { return kv.KeyValue.Update(ctx, key, value, revision) })
}

func (kv mortalKeyValue) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	return kv.do(key, func() (uint64, error) { return kv.KeyValue.Put(ctx, key, value) })
}

func (kv mortalKeyValue) Delete(ctx context.Context, key string, opts ...jetstream.KVDeleteOpt) error {
	_, err := kv.do(key, func() (uint64, error) { return 0, kv.KeyValue.Delete(ctx, key, opts...) })
	return err
}
