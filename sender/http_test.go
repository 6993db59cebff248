// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/sender/queue"
)

// TestHTTPObjectNames: names are those of the files as far as gateways take them, a queue gives
// them back, and shortened names stay distinct.
func TestHTTPObjectNames(t *testing.T) {
	long := strings.Repeat("d/", 100) + "frame.jpg"
	for _, c := range []struct {
		config    HTTPConfig
		rel, want string
	}{
		{HTTPConfig{NameFrom: NameFromPath}, "2026/11/a.jpg", "2026/11/a.jpg"},
		{HTTPConfig{NameFrom: NameFromBase}, "2026/11/a.jpg", "a.jpg"},
		{HTTPConfig{NameFrom: NameFromNothing}, "2026/11/a.jpg", ""},
		{HTTPConfig{NameFrom: NameFromPath}, stdinName, ""},
		{HTTPConfig{NameFrom: NameFromPath, Prefix: "north/"}, "100%|x.", "north/100%|x."},
		{HTTPConfig{NameFrom: NameFromPath}, long, shortName(long)},
		{HTTPConfig{NameFrom: NameFromPath}, strings.Repeat("d/", 95) + "frame.jpg", strings.Repeat("d/", 95) + "frame.jpg"},
		{HTTPConfig{NameFrom: NameFromPath}, "a\uFFFDb", "a\uFFFDb"},
		{HTTPConfig{NameFrom: NameFromPath}, ".uploads/x", shortName(".uploads/x")},
		{HTTPConfig{NameFrom: NameFromPath}, "a\xff\\b", shortName("a\xff\\b")},
	} {
		name := c.config.nameOf(c.rel)
		if got := c.config.fullName(name); got != c.want {
			t.Errorf("%q: %q, want %q", c.rel, got, c.want)
		}
		if name == "" {
			continue
		}
		if err := wire.CheckSentName(c.config.fullName(name)); err != nil {
			t.Errorf("%q: %v", c.rel, err)
		}
		queued, whole := c.config.queueName(c.rel)
		e, ok := queue.ParseFile(queue.Entry{Name: queued}.File())
		if whole == "" {
			whole = unescapeName(e.Name)
		}
		if back := c.config.nameOf(whole); !ok || back != name {
			t.Errorf("%q: the queue says %q (%t), want %q", c.rel, back, ok, name)
		}
	}
	if shortName(long) == shortName("x/"+long) {
		t.Error("two names became one")
	}
}

func TestParseURLs(t *testing.T) {
	all, prefix, err := parseURLs([]string{"http://a:1/in/sky/2026", " http://b:2/in/sky/2026/"})
	if err != nil || prefix != "2026/" || !cmp.Equal(all, []string{"http://a:1/in/sky/", "http://b:2/in/sky/"}) {
		t.Errorf("%q, prefix %q: %v", all, prefix, err)
	}
	for _, bad := range [][]string{
		{"http://a:1/"}, {"http://a:1/in/"}, {"ftp://a:1/in/sky/"}, {"http://user:secret@a:1/in/sky/"}, {"http://a:1/in/sky/?x"},
		{"http://a:1/in/sky/", "https://b:1/in/sky/"}, {"http://a:1/in/sky/", "http://b:1/in/other/"}, {"http://a:1/in/sky/", "b:1"},
	} {
		if all, _, err := parseURLs(bad); err == nil {
			t.Errorf("%q: %q", bad, all)
		}
	}
}

// TestRetryAfter: servers that ask to be left alone are, and for no more than a while.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		status int
		header string
		want   time.Duration
	}{
		{429, "3", 3 * time.Second}, {503, "5", 5 * time.Second}, {503, "", 0}, {400, "5", 0}, {503, "-1", 0}, {503, "soon", 0},
		{503, now.Add(time.Minute).Format(http.TimeFormat), time.Minute}, {503, "99999999999", 10 * time.Minute},
	} {
		if got := retryAfter(answer{status: c.status, header: http.Header{"Retry-After": {c.header}}}, now); got != c.want {
			t.Errorf("%d %q: %v, want %v", c.status, c.header, got, c.want)
		}
	}
	r := newRoster([]string{"a", "b"})
	r.now = func() time.Time { return now }
	r.hold("a", time.Minute)
	for range 4 {
		if got, ok := r.pick(nil); !ok || got != "b" {
			t.Errorf("picked %q", got)
		}
	}
	if got, ok := r.pick([]string{"b"}); ok {
		t.Errorf("picked %q, which asked to be left alone", got)
	}
	now = now.Add(time.Minute)
	if got, _ := r.pick([]string{"b"}); got != "a" {
		t.Errorf("picked %q", got)
	}
}

// TestHalfSent: of an entry that is half sent only the rest counts for the day.
func TestHalfSent(t *testing.T) {
	s := newSchedule(false, 0, 1000)
	s.add(entries(800)...)
	e, _, ok := s.pick(noon)
	if !ok {
		t.Fatal("not sent")
	}
	s.budget.spent += 500
	s.noteProgress(e, 500, noon)
	if _, _, ok := s.pick(noon); ok {
		t.Error("sent without a pause")
	}
	again, _, ok := s.pick(noon.Add(time.Second))
	if !ok || s.budget.promised != 300 {
		t.Fatalf("sent: %t, promised %d", ok, s.budget.promised)
	}
	s.received(again)
	if n, bytes, _ := s.owed(); n != 0 || bytes != 0 || s.budget.promised != 0 || len(s.arrived) != 0 {
		t.Errorf("owed %d, %d bytes, promised %d, arrived %v", n, bytes, s.budget.promised, s.arrived)
	}
}

// TestOvertakenUpload: if the same bytes arrived over another connection, the sender asks for the
// upload's offset; the upload is neither refused nor restarted. A name that another object has is
// refused.
func TestOvertakenUpload(t *testing.T) {
	problem := func(cause wire.Cause) answer {
		return answer{status: http.StatusConflict, header: http.Header{"Content-Type": {"application/problem+json"}}, body: []byte(`{"detail":"why","cause":"` + string(cause) + `"}`)}
	}
	moved := problem(wire.CauseBadRequest)
	elsewhere := answer{status: http.StatusConflict, header: http.Header{"Upload-Offset": {"7"}}}
	for name, c := range map[string]struct {
		answer  answer
		refused wire.Cause
		goesOn  bool
	}{
		"meanwhile":    {moved, "", true},
		"before":       {elsewhere, "", true},
		"another name": {problem(wire.CauseNameConflict), wire.CauseNameConflict, false},
	} {
		at := uploadAt{Path: "/in/sky/.uploads/1", Target: "/in/sky/", SHA256: wire.Digest{}.String()}
		r := newResumption("", nil)
		if err := r.set(at); err != nil {
			t.Fatal(err)
		}
		tr := &transfer{web: &web{sender: &sender{lost: func(int64) {}}}, item: item{resumption: r}}
		offset := int64(0)
		v := tr.judgePatch(c.answer, nil, &offset, 10, true)
		if v.receipted || v.err == nil || v.refused != c.refused {
			t.Errorf("%s: %+v", name, v)
		}
		if goesOn := r.path(at) != ""; goesOn != c.goesOn {
			t.Errorf("%s: goes on %t, want %t", name, goesOn, c.goesOn)
		}
	}
}
