// SPDX-License-Identifier: Apache-2.0

package decode_test

import (
	"testing"
	"time"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/wire"
)

func TestObserver(t *testing.T) {
	received := time.Date(2020, 1, 4, 12, 0, 0, 123456789, time.UTC)
	timed := csvChannel(",", []int{1}, column(double("x"), 2))
	timed.Name, timed.Datagrams, timed.Time.Precision = "timed", "raw", wire.PrecisionNanoseconds
	untimed := csvChannel(",", nil, column(double("x"), 1))
	untimed.Name, untimed.Datagrams = "untimed", "raw"
	untimed.Time = wire.ChannelTimeEntry{Source: wire.TimeReceived, Precision: wire.PrecisionNanoseconds}
	broken := timed
	broken.Parameters = nil

	for name, declared := range map[string][]wire.ChannelEntry{"nothing": nil, "the time of receipt": {untimed}, "what cannot be read": {broken}} {
		if o := decode.NewObserver(declared, "raw"); o != nil {
			t.Errorf("%s is observed", name)
		}
	}
	if decode.NewObserver([]wire.ChannelEntry{timed}, "other") != nil {
		t.Error("another channel is observed")
	}
	var none *decode.Observer
	none.Add([]byte("2020,1"), received)
	if _, _, ok := none.Span(); ok {
		t.Error("nobody observed anything")
	}

	for name, c := range map[string]struct {
		declared    []wire.ChannelEntry
		payloads    []string
		from, to    string
		undecodable int
	}{
		"in any order":                 {[]wire.ChannelEntry{broken, timed}, []string{"2020-01-02,1\n2020-01-01,1", "no", "2020-01-03T01:00,2"}, "2020-01-01T00:00:00Z", "2020-01-03T01:00:00Z", 1},
		"a clock that is not believed": {[]wire.ChannelEntry{timed}, []string{"2000-01-02,1\n2020-01-02T00:00:00,1", "1980-01-06,1"}, "2020-01-02T00:00:00Z", received.Format(time.RFC3339Nano), 0},
		"nothing readable":             {[]wire.ChannelEntry{timed}, []string{"no", ""}, "", "", 1},
		"two declarations":             {[]wire.ChannelEntry{timed, untimed}, []string{"2020-01-02,1"}, "2020-01-02T00:00:00Z", received.Format(time.RFC3339Nano), 0},
	} {
		o := decode.NewObserver(c.declared, "raw")
		for _, p := range c.payloads {
			o.Add([]byte(p), received)
		}
		from, to, ok := o.Span()
		if ok != (c.from != "") || ok && (from.Format(time.RFC3339Nano) != c.from || to.Format(time.RFC3339Nano) != c.to) || o.Undecodable != c.undecodable {
			t.Errorf("%s: %s to %s, %v; %d undecodable", name, from, to, ok, o.Undecodable)
		}
	}
	o := decode.NewObserver([]wire.ChannelEntry{timed}, "raw")
	o.Add([]byte("1980-01-06,1\n2000-01-02,1"), received)
	if d := o.Doubted(); d == nil || d.From.Year() != 1980 || d.To.Year() != 2000 {
		t.Errorf("doubted %+v", d)
	}
}
