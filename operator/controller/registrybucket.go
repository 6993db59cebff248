// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/entries"
	"github.com/substorm/substorm/operator/plan/observed"
)

const (
	// opTimeout bounds each single write of the registry: however many there are, each has as long.
	opTimeout = tryTimeout
	// maxWrites is how many writes wait for their answers at once.
	maxWrites = 64
)

// errSuperseded: another operator's message follows the last one of this operator.
var errSuperseded = errors.New("another operator writes the registry now: this one no longer leads, and ends")

// readRegistry reads the whole registry, and after which message the next write comes. An operator that has written the registry and finds
// another's marker in it has lost its lease without knowing, for example in the middle of a pass: it writes nothing any more.
func (l *link) readRegistry(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue) error {
	last, err := stream.LastOf(ctx, js, "KV_"+kv.Bucket(), "$KV."+kv.Bucket()+".>")
	if err != nil {
		return err
	}
	state := emptyRegistry()
	var complete *wire.RegistryComplete
	err = stream.Entries(ctx, js, kv, ">", func(entry jetstream.KeyValueEntry) (err error) {
		if entry.Key() == wire.RegistryCompleteKey {
			complete, err = decodeComplete(entry.Value())
		} else {
			err = readEntry(entry, state)
		}
		if err != nil {
			return fmt.Errorf("registry entry %s: %w", entry.Key(), err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if complete != nil && complete.Writer != "" && complete.Writer != l.writer && l.owns() {
		l.superseded(errSuperseded)
		return errSuperseded
	}
	l.mu.Lock()
	l.last = last
	l.mu.Unlock()
	l.facts.setRegistry(state, complete, l.now())
	return nil
}

// owns says whether the marker that was last read or written is this operator's.
func (l *link) owns() bool {
	_, _, _, complete := l.facts.snapshot()
	return complete != nil && complete.Writer == l.writer
}

func emptyRegistry() observed.RegistryState {
	return observed.RegistryState{Entries: map[string]wire.InstrumentEntry{}, Feeds: map[string]wire.FeedEntry{},
		Consumers: map[string]wire.ConsumerEntry{}, Readers: map[string]wire.ReaderEntry{}, Closed: map[string]wire.ClosedEntry{},
		Mirrors: map[string]wire.MirrorEntry{}}
}

// readEntry reads one entry of any kind.
func readEntry(entry jetstream.KeyValueEntry, into observed.RegistryState) error {
	if name, ok := wire.ParseRegistryInstrumentKey(entry.Key()); ok {
		return decodeEntry(entry, name, into.Entries, wire.Decode[wire.InstrumentEntry])
	}
	if name, ok := wire.ParseRegistryFeedKey(entry.Key()); ok {
		return decodeEntry(entry, name, into.Feeds, wire.Decode[wire.FeedEntry])
	}
	if name, ok := wire.ParseRegistryConsumerKey(entry.Key()); ok {
		return decodeEntry(entry, name, into.Consumers, wire.Decode[wire.ConsumerEntry])
	}
	if name, ok := wire.ParseRegistryReaderKey(entry.Key()); ok {
		return decodeEntry(entry, name, into.Readers, wire.Decode[wire.ReaderEntry])
	}
	if name, ok := wire.ParseRegistryMirrorKey(entry.Key()); ok {
		return decodeEntry(entry, name, into.Mirrors, wire.Decode[wire.MirrorEntry])
	}
	if name, ok := wire.ParseRegistryClosedKey(entry.Key()); ok {
		return decodeEntry(entry, name, into.Closed, wire.Decode[wire.ClosedEntry])
	}
	return nil
}

// decodeEntry: an entry that can't be read differs from every plan and is rewritten.
func decodeEntry[E any](entry jetstream.KeyValueEntry, name string, into map[string]E, decode func([]byte) (E, error)) error {
	e, err := decode(entry.Value())
	if errors.Is(err, wire.ErrNewerFormat) {
		return err
	}
	into[name] = e
	return nil
}

func readComplete(ctx context.Context, kv jetstream.KeyValue) (*wire.RegistryComplete, error) {
	value, err := kv.Get(ctx, wire.RegistryCompleteKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("registry marker: %w", err)
	}
	return decodeComplete(value.Value())
}

// decodeComplete: a marker that can't be read counts as none.
func decodeComplete(data []byte) (*wire.RegistryComplete, error) {
	complete, err := wire.Decode[wire.RegistryComplete](data)
	if errors.Is(err, wire.ErrMalformed) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("registry marker: %w", err)
	}
	return &complete, nil
}

// registryStands says whether the registry is the one that was last written.
func (l *link) registryStands(ctx context.Context) bool {
	l.mu.Lock()
	kv := l.registry
	l.mu.Unlock()
	if kv == nil {
		return false
	}
	_, _, _, before := l.facts.snapshot()
	is, err := readComplete(ctx, kv)
	_, _, _, after := l.facts.snapshot()
	if before != after { // it was written meanwhile
		return err == nil
	}
	return err == nil && (is == nil) == (after == nil) && (is == nil || *is == *after)
}

// write applies a change to the registry, and remembers it. After an error it reads the registry again, so that the next change begins
// where this one stopped.
func (l *link) write(ctx context.Context, change entries.Change) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	js, kv, last := l.js, l.registry, l.last
	l.mu.Unlock()
	if kv == nil {
		return errNotConnected
	}
	ours := *change.Complete
	ours.Writer, change.Complete = l.writer, &ours
	last, err := putRegistry(ctx, js, kv.Bucket(), last, change)
	if err != nil {
		return errors.Join(err, l.readRegistry(ctx, js, kv))
	}
	l.mu.Lock()
	l.last = last
	l.mu.Unlock()
	l.facts.changeRegistry(change, l.now())
	return nil
}

// putRegistry writes entries, removes what is gone, and then marks the snapshot as complete; it returns the sequence of its last message.
// The bucket has one writer of these keys: each batch states the sequence that it follows, the first one last. JetStream refuses a batch if
// another writer's message has come before it: an operator that was replaced while it wrote undoes nothing that its successor wrote.
//
// A chain of messages that each expect the ID of the one before would not do: a stream with replicas of NATS 2.15 stops for good at a
// message that comes after another one than it expects.
func putRegistry(ctx context.Context, js jetstream.JetStream, bucket string, last uint64, change entries.Change) (uint64, error) {
	messages, err := registryMessages(bucket, change)
	if err != nil {
		return 0, err
	}
	for len(messages) > 0 {
		batch := messages[:batchSize(messages)]
		if last, err = putBatch(ctx, js, bucket, last, batch); err != nil {
			return 0, fmt.Errorf("registry entries %s to %s: %w", batch[0].Subject, batch[len(batch)-1].Subject, err)
		}
		messages = messages[len(batch):]
	}
	return last, nil
}

// batchSize is how many of the messages are written next: a batch takes as long as some twenty messages one by one.
func batchSize(messages []*nats.Msg) int {
	const few, maxBytes = 16, 8 << 20
	if len(messages) <= few {
		return 1
	}
	size, n := 0, 0
	for n < min(len(messages), stream.MaxGroup) && (n == 0 || size+messages[n].Size() <= maxBytes) {
		size += messages[n].Size()
		n++
	}
	return n
}

// putBatch writes messages after the one with sequence last, or after messages that runs of mirrors and the archivist wrote meanwhile: keys
// of their own, which the operator neither reads nor writes.
func putBatch(ctx context.Context, js jetstream.JetStream, bucket string, last uint64, batch []*nats.Msg) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	for {
		written, err := stream.PublishAfter(ctx, js.Conn(), streamOf(bucket), last, batch)
		if !errors.Is(err, stream.ErrConflict) {
			return written, err
		}
		now, failed := pastMirrors(ctx, js, bucket, last)
		if failed != nil || now == last {
			return 0, errors.Join(err, failed)
		}
		last = now
	}
}

// pastMirrors returns the sequence of the newest message if runs of mirrors wrote all that came after last; else last. The number of
// requests does not depend on how many they wrote: a run that receives another Site's instruments for the first time writes thousands.
func pastMirrors(ctx context.Context, js jetstream.JetStream, bucket string, last uint64) (uint64, error) {
	subject := "$KV." + bucket + "."
	now, err := stream.LastOf(ctx, js, streamOf(bucket), subject+">")
	if err != nil {
		return 0, err
	}
	var theirs atomic.Bool
	asks, ctx := errgroup.WithContext(ctx)
	for _, keys := range wire.RegistryOfOperator() {
		asks.Go(func() error {
			sequence, err := stream.NextOf(ctx, js, streamOf(bucket), subject+keys, last+1)
			if sequence > 0 {
				theirs.Store(true)
			}
			return err
		})
	}
	if err := asks.Wait(); err != nil {
		return 0, err
	}
	if theirs.Load() {
		return last, nil
	}
	return now, nil
}

// registryMessages are the messages that make a change in a bucket, in their order.
func registryMessages(bucket string, change entries.Change) ([]*nats.Msg, error) {
	subject := "$KV." + bucket + "."
	var all []*nats.Msg
	for _, put := range slices.Concat(puts(change)...) {
		data, err := wire.Encode(put.record)
		if err != nil {
			return nil, fmt.Errorf("registry entry %s: %w", put.key, err)
		}
		all = append(all, &nats.Msg{Subject: subject + put.key, Data: data})
	}
	for _, key := range slices.Concat(deletes(change)...) {
		all = append(all, &nats.Msg{Subject: subject + key, Header: nats.Header{"KV-Operation": {"DEL"}}})
	}
	data, err := wire.Encode(*change.Complete)
	if err != nil {
		return nil, fmt.Errorf("registry marker: %w", err)
	}
	return append(all, &nats.Msg{Subject: subject + wire.RegistryCompleteKey, Data: data}), nil
}

// registryPut is an entry to write.
type registryPut struct {
	key    string
	record any
}

// puts are by kind, in the order of plan.RegistryChange: one kind is written before the
// next one is begun.
func puts(change entries.Change) [][]registryPut {
	all := make([][]registryPut, 6)
	for _, e := range change.PutClosed {
		all[0] = append(all[0], registryPut{wire.RegistryClosedKey(e.Instrument), e})
	}
	for _, e := range change.Put {
		all[1] = append(all[1], registryPut{wire.RegistryInstrumentKey(e.Instrument), e})
	}
	for _, e := range change.PutReaders {
		all[2] = append(all[2], registryPut{wire.RegistryReaderKey(e.Reader), e})
	}
	for _, e := range change.PutFeeds {
		all[3] = append(all[3], registryPut{wire.RegistryFeedKey(e.Feed), e})
	}
	for _, e := range change.PutConsumers {
		all[4] = append(all[4], registryPut{wire.RegistryConsumerKey(e.Consumer), e})
	}
	for _, e := range change.PutMirrors {
		all[5] = append(all[5], registryPut{wire.RegistryMirrorKey(e.Partner), e})
	}
	return all
}

// deletes are the keys that go, by kind.
func deletes(change entries.Change) [][]string {
	var all [][]string
	for _, of := range []struct {
		names []string
		key   func(string) string
	}{
		{change.DeleteMirrors, wire.RegistryMirrorKey}, {change.DeleteConsumers, wire.RegistryConsumerKey}, {change.DeleteFeeds, wire.RegistryFeedKey},
		{change.DeleteReaders, wire.RegistryReaderKey}, {change.Delete, wire.RegistryInstrumentKey}, {change.DeleteClosed, wire.RegistryClosedKey},
	} {
		keys := make([]string, len(of.names))
		for i, name := range of.names {
			keys[i] = of.key(name)
		}
		all = append(all, keys)
	}
	return all
}
