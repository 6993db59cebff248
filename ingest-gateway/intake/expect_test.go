// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// However an object arrives in pieces, its head, tail and size decide.
func TestWitness(t *testing.T) {
	jpeg := &Expect{MinSize: 6, Magic: []byte("\xff\xd8\xff"), Trailer: []byte("\xff\xd9")}
	long := bytes.Repeat([]byte("0123456789"), 100)
	for _, c := range []struct {
		name   string
		expect *Expect
		object []byte
		want   bool
	}{
		{"whole", jpeg, []byte("\xff\xd8\xff.\xff\xd9"), true},
		{"too short", jpeg, []byte("\xff\xd8\xff\xff\xd9"), false},
		{"another magic", jpeg, []byte("\xff\xd8\xfe.\xff\xd9"), false},
		{"cut off", jpeg, []byte("\xff\xd8\xff..\xff"), false},
		{"shorter than its trailer", &Expect{Trailer: []byte{0, 0}}, []byte{0}, false},
		{"shorter than its magic", &Expect{Magic: []byte{1, 0}}, []byte{1}, false},
		{"magic and trailer are the same bytes", &Expect{Magic: []byte("ab"), Trailer: []byte("ab")}, []byte("ab"), true},
		{"longest marks", &Expect{Magic: long[:maxMark], Trailer: long[len(long)-maxMark:]}, long, true},
		{"longest marks, one byte off", &Expect{Magic: long[:maxMark], Trailer: long[len(long)-maxMark-1 : len(long)-1]}, long, false},
		{"size alone", &Expect{MinSize: 1000}, long, true},
		{"size alone, too short", &Expect{MinSize: 1001}, long, false},
	} {
		for seed := range uint64(20) {
			pieces := rand.New(rand.NewPCG(seed, 1))
			var w Witness
			for rest := c.object; len(rest) > 0; {
				n := 1 + pieces.IntN(min(len(rest), 80))
				w.See(rest[:n])
				rest = rest[n:]
			}
			if got := w.Meets(c.expect); got != c.want {
				t.Fatalf("%s: %v (pieces of seed %d)", c.name, got, seed)
			}
		}
	}
}

func TestWaysOverTCP(t *testing.T) {
	base := wire.ListenerEntry{Protocol: wire.ProtocolTCP, Port: 1, Framing: wire.FramingLines, Receipt: wire.ReceiptLine, IdleTimeoutMillis: 1000, MaxAgeMillis: 2000}
	read := func(change func(*wire.ListenerEntry)) (*Listener, error) {
		e := base
		change(&e)
		return newListener(&Instrument{Cadence: time.Minute}, e)
	}
	w, err := read(func(e *wire.ListenerEntry) {
		e.Framing, e.IdleAfterMillis, e.Expect = wire.FramingIdle, 500, &wire.ExpectEntry{MinSize: 3, Magic: "ffd8"}
	})
	if err != nil || w.IdleAfter != 500*time.Millisecond || w.Quiet != 2*time.Minute || w.Expect.MinSize != 3 ||
		!bytes.Equal(w.Expect.Magic, []byte{0xff, 0xd8}) || len(w.Expect.Trailer) != 0 {
		t.Errorf("%+v, %v", w, err)
	}
	w, err = read(func(e *wire.ListenerEntry) { e.IdleTimeoutMillis = 180_000 })
	if err != nil || w.Quiet != 3*time.Minute || w.Expect != nil {
		t.Errorf("%+v, %v", w, err)
	}
	for name, change := range map[string]func(*wire.ListenerEntry){
		"Idle without a pause": func(e *wire.ListenerEntry) { e.Framing = wire.FramingIdle },
		"Lines with a pause":   func(e *wire.ListenerEntry) { e.IdleAfterMillis = 1 },
		"half a byte":          func(e *wire.ListenerEntry) { e.Expect = &wire.ExpectEntry{Magic: "fff"} },
		"no hexadecimal":       func(e *wire.ListenerEntry) { e.Expect = &wire.ExpectEntry{Trailer: "JPEG"} },
		"too much":             func(e *wire.ListenerEntry) { e.Expect = &wire.ExpectEntry{Magic: strings.Repeat("00", maxMark+1)} },
	} {
		if w, err := read(change); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, w, err)
		}
	}
	if w, err := read(func(e *wire.ListenerEntry) { e.Framing = "Records" }); err == nil || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("a framing of a newer version: %+v, %v", w, err)
	}
}
