// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// ErrEpoch: the stream was deleted and made again; sequences of the old one mean
// nothing in it.
var ErrEpoch = errors.New("the stream was deleted and recreated")

const (
	// idleConsumer is when the server forgets a reader that asks for nothing.
	idleConsumer = 5 * time.Minute
	// endTimeout bounds a question about the stream's end.
	endTimeout = 5 * time.Second
)

// Position is a place in one stream: the first sequence that something has not
// come to yet. The zero value is no place at all.
type Position struct {
	Epoch string
	Next  uint64
}

// Message is a message as it lies in a stream.
type Message struct {
	Sequence uint64
	// At is when the stream took it, by the server's clock.
	At      time.Time
	Subject string
	Header  nats.Header
	// Data is empty where the reader asked for headers only.
	Data []byte
}

// CheckOrigin returns wire.ErrMalformed for a message of a Site's base stream that bears a subject of the Site's own and came from
// another stream, and for a message that JetStream stored as the answer to a request whose reply subject is one of the stream's.
func (m *Message) CheckOrigin(site string) error {
	if source := m.Header.Get(wire.HeaderStreamSource); wire.IsForeign(site, m.Subject, source) {
		return fmt.Errorf("it was not published by a program of site %q: it comes from another stream (%s: %s): %w", site, wire.HeaderStreamSource, source, wire.ErrMalformed)
	}
	if stored := m.Header.Get(jetstream.StreamHeader); stored != "" {
		return fmt.Errorf("it was not published by a program of site %q: it is JetStream's response to a request for a message (%s: %s): %w", site, jetstream.StreamHeader, stored, wire.ErrMalformed)
	}
	return nil
}

// ReaderConfig says what to read.
type ReaderConfig struct {
	Stream string
	// Epoch of the stream (wire.StreamEpoch); another one is ErrEpoch.
	Epoch string
	// Subject filters; empty means all.
	Subject string
	// More subjects are read too, in the order of the stream; only with Subject.
	More []string
	// Start is the first sequence that is wanted; 0 means the first there is.
	Start uint64
	// HeadersOnly leaves the payloads on the server.
	HeadersOnly bool
}

// Reader reads a stream in order and without gaps, in batches, and acknowledges
// nothing. It is used by one goroutine.
type Reader struct {
	js     jetstream.JetStream
	cfg    ReaderConfig
	stream jetstream.Stream

	consumer  jetstream.Consumer // nil: to be created again from next on
	delivered uint64             // consumer's sequence of the last message
	next      uint64
	caughtUp  bool
}

// NewReader returns a reader. It asks the server nothing yet.
func NewReader(js jetstream.JetStream, cfg ReaderConfig) *Reader {
	return &Reader{js: js, cfg: cfg, next: max(1, cfg.Start)}
}

// Epoch returns the epoch of a stream that exists, and its state.
func Epoch(ctx context.Context, js jetstream.JetStream, name string) (string, jetstream.StreamState, error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return "", jetstream.StreamState{}, fmt.Errorf("stream %s: %w", name, err)
	}
	info := s.CachedInfo()
	return wire.StreamEpoch(info.Created), info.State, nil
}

// Position returns the first sequence that was not yet returned: every message
// below it was, or is not in the stream. CaughtUp says that the last call of
// Next reached the stream's end, as the stream's leader has it: the consumer may
// be on a server whose replica is behind, and sees no more than that.
func (r *Reader) Position() (next uint64, caughtUp bool) { return r.next, r.caughtUp }

// Next returns up to most messages. It waits for the first of them, and returns none when wait is over. Errors: ErrEpoch, those of ctx,
// and whatever keeps JetStream from answering; Next can be called again after an error, and loses nothing. A consumer that the server
// forgot, because the reader was long idle or the server restarted, is no error: it is created again at the reader's position.
func (r *Reader) Next(ctx context.Context, most int, wait time.Duration) ([]Message, error) {
	r.caughtUp = false
	made := r.consumer != nil
	messages, err := r.fetch(ctx, most, wait)
	if made && consumerGone(err) {
		r.consumer = nil
		messages, err = r.fetch(ctx, most, wait)
	}
	if err != nil {
		r.consumer = nil
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("read stream %s from %d: %w", r.cfg.Stream, r.next, err)
	}
	return messages, nil
}

func (r *Reader) fetch(ctx context.Context, most int, wait time.Duration) ([]Message, error) {
	if r.consumer == nil {
		if err := r.connect(ctx); err != nil {
			return nil, err
		}
	}
	call, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	batch, err := r.consumer.Fetch(most, jetstream.FetchContext(call))
	if end, _ := call.Deadline(); err != nil && !time.Now().Before(end) && ctx.Err() == nil {
		return nil, nil // the wait was over before anything was asked
	}
	if err != nil {
		return nil, err
	}
	var messages []Message
	pending := uint64(1)
	for m := range batch.Messages() {
		var message Message
		if message, pending, err = r.accept(m); err != nil {
			r.consumer = nil // read on from the gap
			return messages, nil
		}
		messages = append(messages, message)
	}
	err = batch.Error()
	if errors.Is(err, context.DeadlineExceeded) {
		err = ctx.Err()
	}
	switch {
	case len(messages) > 0 && err != nil:
		r.consumer = nil
		return messages, nil // what came is good
	case len(messages) > 0:
		if pending == 0 {
			_ = r.askEnd(ctx) // if there is no answer, the next call finds out
		}
		return messages, nil
	case err != nil:
		return nil, err
	}
	return nil, r.confirmEnd(ctx) // silence alone is no proof that there is nothing
}

// consumerGone says whether the server has, or may have, no such consumer (any more). Requests to a consumer that does not exist have no
// responder.
func consumerGone(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrConsumerNotFound)
}

var errGap = errors.New("a message is missing")

func (r *Reader) accept(m jetstream.Msg) (Message, uint64, error) {
	meta, err := m.Metadata()
	if err != nil {
		return Message{}, 0, err
	}
	if meta.Sequence.Consumer != r.delivered+1 {
		return Message{}, 0, errGap
	}
	r.delivered, r.next = meta.Sequence.Consumer, meta.Sequence.Stream+1
	return Message{Sequence: meta.Sequence.Stream, At: meta.Timestamp, Subject: m.Subject(),
		Header: m.Headers(), Data: m.Data()}, meta.NumPending, nil
}

func (r *Reader) connect(ctx context.Context) error {
	s, consumer, err := openConsumer(ctx, r.js, r.cfg, r.next, idleConsumer)
	if err != nil {
		return err
	}
	r.stream, r.consumer, r.delivered = s, consumer, 0
	return nil
}

// openConsumer makes a consumer of what lies in a stream from a sequence on, which
// the server forgets when nothing was asked of it for so long. Errors: ErrEpoch,
// JetStream's.
func openConsumer(ctx context.Context, js jetstream.JetStream, from ReaderConfig, next uint64, idle time.Duration) (jetstream.Stream, jetstream.Consumer, error) {
	s, err := js.Stream(ctx, from.Stream)
	if err != nil {
		return nil, nil, err
	}
	cfg := jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: next,
		AckPolicy: jetstream.AckNonePolicy, FilterSubject: from.Subject, HeadersOnly: from.HeadersOnly,
		InactiveThreshold: idle, MemoryStorage: true, Replicas: 1,
	}
	if len(from.More) > 0 {
		cfg.FilterSubject, cfg.FilterSubjects = "", append([]string{from.Subject}, from.More...)
	}
	consumer, err := s.CreateConsumer(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	// Asked after the consumer was made: then it cannot belong to a later stream.
	info, err := s.Info(ctx)
	if err != nil {
		return nil, nil, err
	}
	if epoch := wire.StreamEpoch(info.Created); epoch != from.Epoch {
		return nil, nil, fmt.Errorf("epoch %s, not %s: %w", epoch, from.Epoch, ErrEpoch)
	}
	return s, consumer, nil
}

// askEnd asks the stream's leader whether there is anything behind what was read, and moves the reader to the end if there is not.
func (r *Reader) askEnd(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	info, err := r.stream.Info(call)
	if err != nil {
		return err
	}
	if epoch := wire.StreamEpoch(info.Created); epoch != r.cfg.Epoch {
		return fmt.Errorf("epoch %s, not %s: %w", epoch, r.cfg.Epoch, ErrEpoch)
	}
	last := info.State.LastSeq
	for _, subject := range append([]string{r.cfg.Subject}, r.cfg.More...) {
		if r.next > last {
			break
		}
		next, err := NextOf(call, r.js, r.cfg.Stream, subject, r.next)
		if err != nil || next > 0 && next <= last {
			return err
		}
	}
	r.next, r.caughtUp = max(r.next, last+1), true
	return nil
}

// confirmEnd asks, after a silence, whether the reader has really seen all there is. If
// it has not, and its consumer has nothing more, it reads on with another one: on another
// server, perhaps.
func (r *Reader) confirmEnd(ctx context.Context) error {
	if err := r.askEnd(ctx); err != nil || r.caughtUp {
		return err
	}
	call, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	info, err := r.consumer.Info(call)
	if err != nil {
		return err
	}
	if info.Delivered.Consumer != r.delivered || info.NumPending == 0 {
		r.consumer = nil // something was sent and never arrived, or its server is behind
	}
	return nil
}
