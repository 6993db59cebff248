// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/substorm/substorm/bench/internal/web"
	"github.com/substorm/substorm/internal/pcapng"
	"github.com/substorm/substorm/internal/wire"
)

const (
	instrument = "mag-1"
	channel    = "field"
	files      = "files"
	datagrams  = "raw"
	epoch      = "19aa"
	// perSegment seconds are in a segment.
	perSegment = 600
)

// magnetometer sends a line a second: a time and three components.
func magnetometer() wire.InstrumentEntry {
	fill := "-1e31"
	e := web.Camera(instrument, time.Second)
	e.MediaType = ""
	e.Listeners = []wire.ListenerEntry{{Protocol: wire.ProtocolUDP, Port: 30102, Channel: datagrams}}
	e.Channels = []wire.ChannelEntry{{
		Name: channel, Description: "The field.", Datagrams: datagrams, CadenceMillis: 1000, UnitsSchema: "udunits2",
		Payload: wire.PayloadEntry{Type: wire.PayloadCSV, Separator: ","},
		Time: wire.ChannelTimeEntry{Source: wire.TimePayload, Format: wire.TimeISO8601, Columns: []int{1}, Precision: wire.PrecisionMilliseconds,
			Location: "begin", MaxDelayMillis: time.Minute.Milliseconds()},
		Parameters: []wire.ParameterEntry{{Name: "B", Units: "nT", Type: wire.ParameterDouble, Size: []int{3}, Fill: &fill, Column: 2}},
	}}
	return e
}

// filler stores days of segments, as gateways cut them.
type filler struct {
	site  *web.Site
	begin time.Time
	next  uint64
}

// segments are those of a day.
type segments struct {
	// path is where one of them is served.
	path string
	// keys are what all are called in the bucket.
	keys []string
}

// fill returns the segments of each day.
func (f *filler) fill(ctx context.Context, days int) ([]segments, error) {
	const perDay = 86_400 / perSegment
	all := make([]segments, days)
	for n := range days * perDay {
		r, err := f.segment(ctx, f.begin.Add(time.Duration(n*perSegment)*time.Second))
		if err != nil {
			return nil, fmt.Errorf("store a segment: %w", err)
		}
		of := &all[n/perDay]
		of.path, of.keys = "/archive/"+instrument+"/"+r.Published(), append(of.keys, r.Key)
	}
	return all, nil
}

func (f *filler) segment(ctx context.Context, at time.Time) (wire.Record, error) {
	var out bytes.Buffer
	packets, err := pcapng.NewPackets(&out, "a benchmark")
	if err != nil {
		return wire.Record{}, err
	}
	var from, to time.Time
	for i := range perSegment {
		second := at.Add(time.Duration(i) * time.Second)
		received := second.Add(500 * time.Millisecond)
		if i == 0 {
			from = second
		}
		to = second
		if err := packets.Write(wire.Datagram{ReceivedAt: received, Source: netip.MustParseAddrPort("192.0.2.7:4000"), DestinationPort: 30102, Payload: sample(second)}); err != nil {
			return wire.Record{}, err
		}
	}
	first := f.next + 1
	f.next += perSegment
	body := out.Bytes()
	received := to.Add(time.Second)
	key := wire.SegmentKey(web.SiteCode, instrument, datagrams, wire.DayOf(received), epoch, first, f.next)
	r := wire.Record{
		ID: key, Key: key, Size: int64(len(body)), Digest: sha256.Sum256(body), MediaType: wire.MediaTypeSegment, State: wire.StateCurrent,
		ObservedFrom: &from, ObservedTo: &to, ReceivedAt: received, TimeSource: wire.TimeSourcePayload, Gateway: "north-0", Incarnation: "one",
		Segment: &wire.SegmentRange{Channel: datagrams, Epoch: epoch, First: first, Last: f.next, Messages: perSegment, Datagrams: perSegment},
	}
	return r, f.site.PutRecord(ctx, instrument, r, body)
}

// sample is the line of a second.
func sample(at time.Time) []byte {
	s := float64(at.Unix()%86_400) / 86_400 * 2 * math.Pi
	return fmt.Appendf(at.AppendFormat(nil, "2006-01-02T15:04:05.000Z"), ",%.2f,%.2f,%.2f\n", 11039+40*math.Sin(s), -42+30*math.Cos(3*s), 55210+20*math.Sin(7*s))
}
