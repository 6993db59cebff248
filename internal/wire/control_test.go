// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestPrefix(t *testing.T) {
	for prefix, want := range map[[PrefixSize]byte]struct {
		length  int64
		control bool
	}{
		{0, 0, 0, 0}:             {},
		{0, 0, 1, 2}:             {length: 258},
		{0x7f, 0xff, 0xff, 0xff}: {length: MaxPrefixed},
		{0x80, 0, 0, 0}:          {control: true},
		{0x80, 0, 0x10, 0}:       {length: MaxControl, control: true},
		{0xff, 0xff, 0xff, 0xff}: {length: MaxPrefixed, control: true},
	} {
		if length, control := ParsePrefix(prefix); length != want.length || control != want.control {
			t.Errorf("%x: %d, %v", prefix, length, control)
		}
	}
	if _, err := ControlFrame(make([]byte, MaxControl+1)); !errors.Is(err, ErrMalformed) {
		t.Errorf("a frame that is too long: %v", err)
	}
}

// TestOffset: the four timestamps tell the offset whatever time the gateway took
// to answer, and, where both ways are alike, whatever they took.
func TestOffset(t *testing.T) {
	for _, c := range []struct{ offset, there, stay, back, want, error time.Duration }{
		{0, 0, 0, 0, 0, 0},
		{3 * time.Second, 100 * time.Millisecond, 5 * time.Second, 100 * time.Millisecond, 3 * time.Second, 0},
		{-time.Hour, time.Second, 0, time.Second, -time.Hour, 0},
		{time.Second, 800 * time.Millisecond, time.Minute, 0, 1400 * time.Millisecond, 400 * time.Millisecond},
	} {
		sent := sampleTime
		received := sent.Add(c.there + c.offset)
		answered := received.Add(c.stay)
		heard := sent.Add(c.there + c.stay + c.back)
		offset, roundTrip := HeartbeatAnswer{received, answered}.Offset(sent, heard)
		if offset != c.want || roundTrip != c.there+c.back || (offset-c.offset).Abs() != c.error || c.error > roundTrip/2 {
			t.Errorf("%+v: offset %v, round trip %v", c, offset, roundTrip)
		}
	}
}

func TestNoHeartbeat(t *testing.T) {
	good, err := sampleHeartbeat().Frame()
	if err != nil {
		t.Fatal(err)
	}
	body := string(good[PrefixSize:])
	for name, bad := range map[string]string{
		"nothing":      "",
		"no JSON":      "beat",
		"another type": strings.Replace(body, ControlHeartbeat, "command", 1),
		"no format":    strings.Replace(body, `"format":1`, `"format":0`, 1),
		"no time":      strings.Replace(body, `"sentAt":"2026-11-21T23:59:58.987654321Z",`, "", 1),
		"negative":     strings.Replace(body, `"queueObjects":12`, `"queueObjects":-12`, 1),
		"round trip":   strings.Replace(body, `"roundTrip":"620ms"`, `"roundTrip":"-620ms"`, 1),
		"offset":       strings.Replace(body, `"clockOffset":"-1.5s"`, `"clockOffset":"soon"`, 1),
	} {
		if bad == body {
			t.Fatalf("%s: nothing was replaced", name)
		}
		if h, err := Decode[Heartbeat]([]byte(bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
	if _, err := Decode[Heartbeat]([]byte(strings.Replace(body, `"format":1`, `"format":2`, 1))); !errors.Is(err, ErrNewerFormat) {
		t.Errorf("newer: %v", err)
	}
	for _, line := range []string{"", "heartbeat", "heartbeat received=2026-11-21T23:59:58Z", "heartbeat received=2026-11-21T23:59:58Z answered=yesterday",
		"heartbeat received=2026-11-21T23:59:58Z answered=2026-11-21T25:59:58Z", "stored sha-256=" + sampleDigest("frame").String() + " bytes=5"} {
		if a, err := ParseHeartbeatAnswer(line); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v, %v", line, a, err)
		}
	}
}
