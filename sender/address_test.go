// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"strings"
	"testing"
	"time"
)

func TestParseAddresses(t *testing.T) {
	for spec, want := range map[string]string{
		"gw:1":                           "gw:1",
		"gw:30101-30103":                 "gw:30101 gw:30102 gw:30103",
		"a:1,b:2-3, [2001:db8::1]:65535": "a:1 b:2 b:3 [2001:db8::1]:65535",
	} {
		got, err := ParseAddresses([]string{spec})
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: got %v, %v; want %s", spec, got, err, want)
		}
	}
	for _, bad := range []string{"", "gw", "gw:", ":1", "gw:0", "gw:65536", "gw:2-1", "gw:1-", "gw:-1", "gw:a", "gw:1,", "2001:db8::1:80", "gw:1-65535", "http://gw:1"} {
		if got, err := ParseAddresses([]string{bad}); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

func TestRoster(t *testing.T) {
	now := time.Now()
	r := newRoster([]string{"a", "b", "c"})
	r.now, r.next = func() time.Time { return now }, 0
	next := func(want string, tried ...string) {
		t.Helper()
		if got, _ := r.pick(tried); got != want {
			t.Errorf("picked %q, want %q", got, want)
		}
	}
	next("a")
	next("b")
	next("c")
	next("a") // spread over all that work
	r.failed("b")
	next("c")
	next("a")
	next("c") // b has its pause
	next("a", "c")
	next("b", "a", "c") // unless nothing else is left
	r.failed("a")
	r.failed("b")
	r.failed("c")
	r.failed("c")
	r.next = 0
	next("a") // a's pause ends first: the others failed twice
	now = now.Add(time.Minute)
	r.next = 1
	next("b")
	r.worked("b")
	r.failed("a")
	r.failed("c")
	next("b")
	if got, ok := r.pick([]string{"a", "b", "c"}); ok {
		t.Errorf("picked %q of none", got)
	}
}
