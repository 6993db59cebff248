// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// lineSpan is what a line shows of the past, and lineStep how much one point stands for:
	// it is the mean of that. 720 points are more than a screen has across.
	lineSpan = time.Hour
	lineStep = 5 * time.Second
	// points are as many as there may be, with some that are ahead of this clock.
	points = int(lineSpan/lineStep) + 12
	// maxLines is how many lines are followed at a time, over all clients. Each reads what one
	// channel of one instrument sends.
	maxLines = 32
	// lingers is for how long a line without viewers is still followed: a viewer who comes back has
	// it at once.
	lingers = time.Minute
	// retryLine is between tries to follow a stream that does not answer.
	retryLine = 2 * time.Second
)

// errLines: as many lines are followed as may be.
var errLines = errors.New("too many datasets are followed already")

// lines are the lines that have viewers, each followed once.
type lines struct {
	cfg Config

	mu  sync.Mutex
	all map[string]*line
	// over: no more are begun.
	over    bool
	running sync.WaitGroup
}

func newLines(cfg Config) *lines { return &lines{cfg: cfg, all: map[string]*line{}} }

// line is the last hour of one dataset, as means.
type line struct {
	entry   wire.ChannelEntry
	set     dataset
	decoder *decode.Decoder
	stop    context.CancelFunc

	// seen by so many; the lock of lines guards it.
	seen   int
	linger *time.Timer

	mu      sync.Mutex
	buckets [points]bucket
	// changes counts what was added.
	changes uint64
}

// bucket is what came in one step.
type bucket struct {
	// number is the step's, from 1970 on.
	number int64
	sum    [maxSeries]float64
	count  [maxSeries]int
	// changed is the line's changes when it was last another.
	changed uint64
}

// follow returns the line of a channel whose payloads are datagrams. Leave it. Errors:
// errLines, decode.ErrChannel.
func (l *lines) follow(in *wire.InstrumentEntry, channel wire.ChannelEntry, set dataset) (*line, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if followed := l.all[set.ID]; followed != nil {
		if reflect.DeepEqual(followed.entry, channel) {
			followed.linger.Stop()
			followed.seen++
			return followed, nil
		}
		followed.stop() // who sees it asks again, see events.line
		delete(l.all, set.ID)
	}
	if l.over || len(l.all) >= maxLines {
		return nil, errLines
	}
	decoder, err := decode.New(channel)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	followed := &line{entry: channel, set: set, decoder: decoder, stop: stop, seen: 1}
	followed.linger = time.AfterFunc(lingers, func() { l.forget(followed) })
	followed.linger.Stop()
	l.all[set.ID] = followed
	subject := wire.ObservationSubject(l.cfg.Site, in.Instrument, channel.Datagrams)
	l.running.Go(func() { followed.run(ctx, l.cfg, subject) })
	return followed, nil
}

// leave ends one viewer's use of a line.
func (l *lines) leave(followed *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if followed.seen--; followed.seen == 0 {
		followed.linger.Reset(lingers)
	}
}

// follows reports whether a line is still followed, and its channel's declaration is still the
// given one.
func (l *lines) follows(followed *line, channel *wire.ChannelEntry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[followed.set.ID] == followed && reflect.DeepEqual(followed.entry, *channel)
}

// forget ends a line that has no viewers.
func (l *lines) forget(followed *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if followed.seen == 0 {
		followed.stop()
		if l.all[followed.set.ID] == followed {
			delete(l.all, followed.set.ID)
		}
	}
}

// end ends all lines.
func (l *lines) end() {
	l.mu.Lock()
	l.over = true
	for _, is := range l.all {
		is.stop()
	}
	l.mu.Unlock()
	l.running.Wait()
}

// run reads the stream: what it has of the last hour, and then what comes.
func (l *line) run(ctx context.Context, cfg Config, subject string) {
	for ctx.Err() == nil {
		err := l.read(ctx, cfg, subject)
		if ctx.Err() != nil {
			return
		}
		cfg.Logger.Debug("cannot read the telemetry of a dataset; retrying", "subject", subject, "error", err)
		retry.Sleep(ctx, retryLine)
	}
}

// read follows the stream until ctx ends, or the stream is recreated. The consumer resumes by
// itself after an outage of NATS.
func (l *line) read(ctx context.Context, cfg Config, subject string) error {
	name := wire.ObservationStream(cfg.Site)
	epoch, _, err := stream.Epoch(ctx, cfg.JetStream, name)
	if err != nil {
		return err
	}
	from := time.Now().Add(-lineSpan)
	consumer, err := cfg.JetStream.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subject}, DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &from, InactiveThreshold: lingers,
	})
	if err != nil {
		return err
	}
	l.begin()
	consuming, err := consumer.Consume(func(m jetstream.Msg) { l.take(cfg, m) })
	if err != nil {
		return err
	}
	defer consuming.Stop()
	for tick := time.Tick(lingers); ; {
		select {
		case <-consuming.Closed():
			return errors.New("its consumer is gone")
		case <-tick:
			if now, _, err := stream.Epoch(ctx, cfg.JetStream, name); err == nil && now != epoch {
				return stream.ErrEpoch
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin forgets what was read: it is read again.
func (l *line) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buckets = [points]bucket{}
}

// take adds the samples of a message. It ignores what cannot be read: HAPI counts that.
func (l *line) take(cfg Config, m jetstream.Msg) {
	from := stream.Message{Subject: m.Subject(), Header: m.Headers()}
	if err := from.CheckOrigin(cfg.Site); err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes++
	for d, err := range wire.Datagrams(m.Data()) {
		if err != nil {
			return
		}
		_ = l.decoder.Decode(d.Payload, d.ReceivedAt, func(s decode.Sample) error {
			l.add(s, d.ReceivedAt)
			return nil
		})
	}
}

// add adds a sample to its step. One that claims to be of another hour than it came in is
// of no use here.
func (l *line) add(s decode.Sample, receivedAt time.Time) {
	if off := receivedAt.Sub(time.Unix(0, s.Time)); off < -lineStep || off > lineSpan {
		return
	}
	number := s.Time / int64(lineStep)
	b := &l.buckets[number%int64(points)]
	switch {
	case b.number > number:
		return
	case b.number < number:
		*b = bucket{number: number}
	}
	b.changed = l.changes
	i := 0
	for _, p := range l.decoder.Parameters() {
		if !slices.Contains(l.set.Parameters, p.Name) {
			continue
		}
		for n := range p.Count {
			if value, ok := number64(&p, s.Values[p.At+n*p.Width:][:p.Width]); ok {
				b.sum[i] += value
				b.count[i]++
			}
			i++
		}
	}
}

// number64 is a value of a parameter; false where it is missing.
func number64(p *decode.Parameter, v []byte) (value float64, ok bool) {
	if p.FillBytes != nil && string(v) == string(p.FillBytes) {
		return 0, false
	}
	if p.Type == wire.ParameterInteger {
		return float64(int32(binary.LittleEndian.Uint32(v))), true
	}
	value = math.Float64frombits(binary.LittleEndian.Uint64(v))
	return value, !math.IsNaN(value) && !math.IsInf(value, 0)
}

// since returns the points that changed after so many changes, each as a JSON array of a time
// in milliseconds since 1970 and the means, with commas between, and how many changes there
// were.
func (l *line) since(changes uint64, now time.Time) (text []byte, all uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	oldest := now.Add(-lineSpan).UnixNano() / int64(lineStep)
	var some []*bucket
	for i := range l.buckets {
		if b := &l.buckets[i]; b.changed > changes && b.number >= oldest {
			some = append(some, b)
		}
	}
	slices.SortFunc(some, func(a, b *bucket) int { return int(a.number - b.number) })
	for i, b := range some {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, '[')
		text = strconv.AppendInt(text, b.number*int64(lineStep/time.Millisecond), 10)
		for n := range l.set.Series {
			if text = append(text, ','); b.count[n] == 0 {
				text = append(text, "null"...)
			} else {
				text = strconv.AppendFloat(text, b.sum[n]/float64(b.count[n]), 'g', 9, 64)
			}
		}
		text = append(text, ']')
	}
	return text, l.changes
}
