// SPDX-License-Identifier: Apache-2.0

package stamp

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"
)

// The layouts of RFC 8762, figures 3 and 6, a row of four bytes at a time.
const (
	goldenRequest = `
00000007 # sequence number
ecc8c09e # timestamp: seconds since 1900
80000000 #            and 2^-32 of one
a105     # error estimate: S=1, Z=0, scale 33, multiplier 5
00000000000000000000000000000000000000000000000000000000000000` + "# must be zero: 30 octets, of which the first one stands here\n"
	goldenReply = `
00000003 # sequence number
ecc8c09e # timestamp
c0000000
2001     # error estimate: S=0, Z=0, scale 32, multiplier 1
0000     # must be zero
ecc8c09e # receive timestamp
a0000000
00000007 # session-sender sequence number
ecc8c09e # session-sender timestamp
80000000
a105     # session-sender error estimate
0000     # must be zero
3f       # session-sender TTL
000000   # must be zero
`
)

func golden(t *testing.T, text string) []byte {
	t.Helper()
	var digits strings.Builder
	for line := range strings.Lines(text) {
		value, _, _ := strings.Cut(line, "#")
		digits.WriteString(strings.TrimSpace(value))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// noon is 2025-11-22T00:00:30.5Z: 3972844830.5 seconds since 1900.
var noon = time.Unix(0xecc8c09e-unixEpoch, int64(time.Second)/2)

func sampleRequest() Request {
	return Request{Sequence: 7, Sent: TimestampOf(noon), Error: 0xa105}
}

func sampleReply() Reply {
	return Reply{Sequence: 3, Sent: TimestampOf(noon.Add(250 * time.Millisecond)), Error: unknownError,
		Received: TimestampOf(noon.Add(125 * time.Millisecond)), Request: sampleRequest(), TTL: 63}
}

func TestGoldenPackets(t *testing.T) {
	request, reply := golden(t, goldenRequest)[:Size], golden(t, goldenReply)
	if len(reply) != Size {
		t.Fatalf("the golden reply has %d bytes", len(reply))
	}
	if got := sampleRequest().Append(nil); hex.EncodeToString(got) != hex.EncodeToString(request) {
		t.Errorf("request\n%x, want\n%x", got, request)
	}
	if got := sampleReply().Append(nil); hex.EncodeToString(got) != hex.EncodeToString(reply) {
		t.Errorf("reply\n%x, want\n%x", got, reply)
	}
	if got, err := ParseRequest(append(request, "padding"...)); err != nil || got != sampleRequest() {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ParseReply(reply); err != nil || got != sampleReply() {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestMalformedPackets(t *testing.T) {
	whole := sampleRequest().Append(nil)
	for n := range Size {
		if _, err := ParseRequest(whole[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d bytes are a request: %v", n, err)
		}
		if _, err := ParseReply(whole[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d bytes are a reply: %v", n, err)
		}
	}
	whole[13] = 0
	if _, err := ParseRequest(whole); !errors.Is(err, ErrMalformed) {
		t.Errorf("a multiplier of 0: %v", err)
	}
}

func TestTimestamps(t *testing.T) {
	later := time.Date(2036, 2, 7, 6, 28, 16, 0, time.UTC) // the next era begins
	if TimestampOf(later) != 0 {
		t.Errorf("%v is %x", later, TimestampOf(later))
	}
	for _, base := range []time.Time{noon, later} {
		for _, d := range []time.Duration{0, 1, -1, 999_999_999, time.Second, -time.Second, -1500 * time.Millisecond, time.Hour, -9999 * time.Hour} {
			if got := TimestampOf(base.Add(d)).Sub(TimestampOf(base)); (got - d).Abs() > time.Nanosecond {
				t.Errorf("%v after %v: %v", d, base, got)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sampleRequest().Append(nil))
	f.Add(sampleReply().Append(nil))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseReply(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) || len(b) >= Size {
				t.Fatal(err)
			}
		} else if again, err := ParseReply(r.Append(nil)); err != nil || again != r {
			t.Fatalf("%+v reads as %+v, %v", r, again, err)
		}
		q, err := ParseRequest(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if again, err := ParseRequest(q.Append(nil)); err != nil || again != q {
			t.Fatalf("%+v reads as %+v, %v", q, again, err)
		}
	})
}
