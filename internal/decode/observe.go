// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"errors"
	"math"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Observer finds when the samples in datagrams were observed, as the channels of their
// instrument declare it. The zero value, and nil, know of no declaration.
type Observer struct {
	decoders []*Decoder
	// received: a channel has the times of receipt.
	received bool
	from, to int64
	// doubtedFrom and doubtedTo span the times that are not believed of their datagram (wire.BelievesObserved), for which its
	// receipt stands.
	doubtedFrom, doubtedTo int64
	// receivedAt is when the datagram was received that is being read.
	receivedAt time.Time
	// Undecodable is how many datagrams at least one channel could not read all of.
	Undecodable int
}

// NewObserver returns an observer for one channel of telemetry; nil where no declared
// channel finds times in its datagrams. One that cannot be read is passed over.
func NewObserver(declared []wire.ChannelEntry, channel string) *Observer {
	o := &Observer{from: math.MaxInt64, to: math.MinInt64, doubtedFrom: math.MaxInt64, doubtedTo: math.MinInt64}
	for i := range declared {
		if declared[i].Datagrams != channel || channel == "" {
			continue
		}
		if declared[i].Time.Source != wire.TimePayload {
			o.received = true
			continue
		}
		if d, err := New(declared[i]); err == nil {
			o.decoders = append(o.decoders, d)
		}
	}
	if len(o.decoders) == 0 {
		return nil
	}
	return o
}

// Add reads a datagram.
func (o *Observer) Add(payload []byte, receivedAt time.Time) {
	if o == nil {
		return
	}
	o.receivedAt = receivedAt
	bad := false
	for _, d := range o.decoders {
		err := d.Decode(payload, receivedAt, o.see)
		var undecodable *Undecodable
		bad = bad || errors.As(err, &undecodable)
	}
	if bad {
		o.Undecodable++
	}
	if o.received {
		_ = o.see(Sample{Time: receivedAt.UnixNano()})
	}
}

func (o *Observer) see(s Sample) error {
	if !wire.BelievesObserved(time.Unix(0, s.Time), o.receivedAt) {
		o.doubtedFrom, o.doubtedTo = min(o.doubtedFrom, s.Time), max(o.doubtedTo, s.Time)
		s.Time = o.receivedAt.UnixNano()
	}
	o.from, o.to = min(o.from, s.Time), max(o.to, s.Time)
	return nil
}

// Span returns the least and greatest time; ok is false where no sample was read.
func (o *Observer) Span() (from, to time.Time, ok bool) {
	if o == nil || o.from > o.to {
		return time.Time{}, time.Time{}, false
	}
	return time.Unix(0, o.from).UTC(), time.Unix(0, o.to).UTC(), true
}

// Doubted returns the least and greatest time that is not believed; nil where all are.
func (o *Observer) Doubted() *wire.TimeSpan {
	if o == nil || o.doubtedFrom > o.doubtedTo {
		return nil
	}
	return &wire.TimeSpan{From: time.Unix(0, o.doubtedFrom).UTC(), To: time.Unix(0, o.doubtedTo).UTC()}
}
