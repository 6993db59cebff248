// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/session"
	"github.com/substorm/substorm/internal/wire"
)

// write puts what is due into the consumer's stream, and waits until it is there.
func (f *filler) write(ctx context.Context, entries []session.Entry, _ wire.FeedToken) (bytes int, err error) {
	messages := make([]*nats.Msg, 0, len(entries))
	for _, e := range entries {
		m := f.message(e)
		if m == nil {
			continue
		}
		messages = append(messages, m)
		bytes += m.Size()
	}
	return bytes, f.put(ctx, messages)
}

// newPublisher makes what fills one consumer's stream. It forgets what is not answered
// in time, and after its CleanupPublisher everything.
func newPublisher(nc *nats.Conn) (jetstream.JetStream, error) {
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(ackTimeout))
	if err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	return js, nil
}

// put publishes messages, and returns when all are in the stream, or one is not.
func (f *filler) put(ctx context.Context, messages []*nats.Msg) error {
	if err := f.lease.Check(); err != nil {
		return err
	}
	acks := make([]jetstream.PubAckFuture, len(messages))
	for i, m := range messages {
		var err error
		if acks[i], err = f.publisher.PublishMsgAsync(m); err != nil {
			return fmt.Errorf("fill stream %s: %w", f.stream, err)
		}
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return fmt.Errorf("fill stream %s: %w", f.stream, err)
		case <-ctx.Done():
			return fmt.Errorf("fill stream %s: %w", f.stream, ctx.Err())
		}
	}
	return nil
}

func (f *filler) message(e session.Entry) *nats.Msg {
	if e.Message == nil {
		return f.gap(e)
	}
	item := item{Subject: e.Message.Subject, Header: e.Message.Header, Data: e.Message.Data, At: e.Message.At, Place: e.Token,
		Replaced: e.Replaced, Sampled: e.Sampled}
	if e.Message.Kind == wire.RecordTelemetry {
		item.Telemetry = true
		if e.Message.Part {
			item.Index = e.Message.Last
		}
		if d := e.Message.Datagrams(); len(d) > 0 {
			item.Size = len(d[0].Payload)
		}
	}
	return f.live(item)
}

// item is one message of a consumer's stream.
type item struct {
	// Subject and Header of the message that it came in.
	Subject string
	Header  nats.Header
	Data    []byte
	// At is when the stream took that message.
	At time.Time
	// Telemetry: it is a datagram, whose index there this is, and its payload's size.
	Telemetry bool
	Index     uint32
	Size      int

	// ID of a WIS2 notification.
	ID string

	Replaced, Sampled uint64
	// Place before which all was given, or is not to be.
	Place wire.FeedToken
}

// live makes the message of an item; nil if there is nothing to send.
func (f *filler) live(i item) *nats.Msg {
	wis2 := f.selection.Consumer.WIS2
	if wis2 && !f.notify(&i) {
		return nil
	}
	m := nats.NewMsg(wire.LiveSubject(f.cfg.Site, f.consumer, i.Subject))
	m.Data = i.Data
	for name, values := range i.Header {
		if !strings.HasPrefix(name, "Nats-") { // they speak of the stream that it came from
			m.Header[name] = values
		}
	}
	f.items[i.Subject] += 1 + i.Replaced + i.Sampled
	m.Header.Set(wire.HeaderToken, i.Place.String())
	m.Header.Set(wire.HeaderReplaced, strconv.FormatUint(i.Replaced, 10))
	m.Header.Set(wire.HeaderSampled, strconv.FormatUint(i.Sampled, 10))
	m.Header.Set(wire.HeaderCount, f.incarnation+"/"+strconv.FormatUint(f.items[i.Subject], 10))
	if wis2 {
		m.Header.Set(wire.HeaderID, i.ID)
		m.Header.Set(wire.HeaderType, wire.TypeWIS2)
		m.Header.Set(wire.HeaderContentType, wire.ContentTypeGeoJSON)
		m.Header.Del(wire.HeaderFormat)
	}
	if i.Telemetry {
		m.Header.Set(wire.HeaderID, i.Header.Get(wire.HeaderID)+"#"+strconv.FormatUint(uint64(i.Index), 10))
		m.Header.Set(wire.HeaderDatagrams, "1")
		m.Header.Set(wire.HeaderDatagramBytes, strconv.Itoa(i.Size))
	}
	return m
}

// notify replaces an item's notice with a WIS2 notification. It returns false if there is nothing
// to announce.
func (f *filler) notify(i *item) bool {
	if i.Telemetry || i.Header.Get(wire.HeaderRefilled) != "" {
		return false
	}
	n, err := wire.Decode[wire.Notice](i.Data)
	if err != nil { // the manifest's writer says which, and why
		return false
	}
	i.ID, i.Data = f.cfg.WIS2(n, i.At)
	return i.Data != nil
}

// gap makes the message of a gap record.
func (f *filler) gap(e session.Entry) *nats.Msg {
	f.gaps++
	subject := wire.GapSubject(f.cfg.Site, f.consumer)
	m := gapMessage(f.cfg, wire.LiveSubject(f.cfg.Site, f.consumer, subject), f.consumer,
		wire.GapID(f.selection.Consumer.UID+"/"+f.incarnation, f.gaps), time.Now(), e.Gap)
	m.Header.Del(wire.HeaderMessageID)
	m.Header.Set(wire.HeaderToken, e.Token.String())
	return m
}
