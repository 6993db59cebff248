// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// confirmLab is an archive whose Site waits for the Reader. The reader other has a token, too.
type confirmLab struct {
	*archivetest.Lab
	ledger, status jetstream.KeyValue
}

const (
	otherToken = "0123456789abcdef-other"
	hidden     = "hidden"
	unpulled   = "unpulled"
)

func newConfirmLab(t *testing.T) *confirmLab {
	t.Helper()
	l := &confirmLab{Lab: newLab(t,
		wire.InstrumentEntry{Instrument: hidden, Access: &wire.AccessEntry{Live: wire.AccessRestricted, Archive: wire.AccessRestricted}},
		wire.InstrumentEntry{Instrument: unpulled, Access: archivetest.Public})}
	s := *l.Snapshot()
	s.Readers = map[string]wire.ReaderEntry{
		archivetest.Reader: {Reader: archivetest.Reader, Tokens: []wire.TokenHash{wire.HashToken([]byte("salt"), archivetest.Token)},
			Pulls: &wire.PullsEntry{Instruments: []string{archivetest.Camera, hidden}, HoldMillis: 1}},
		"other": {Reader: "other", Tokens: []wire.TokenHash{wire.HashToken([]byte("salt"), otherToken)}},
	}
	l.Set(&s)
	var err error
	if l.ledger, err = l.JetStream.KeyValue(t.Context(), wire.LedgerBucket(archivetest.Site)); err == nil {
		l.status, err = l.JetStream.KeyValue(t.Context(), wire.StatusBucket(archivetest.Site))
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// confirm posts lines with a token.
func (l *confirmLab) confirm(token, media string, lines ...any) (status int, body string) {
	l.Helper()
	var text bytes.Buffer
	for _, line := range lines {
		if err := json.NewEncoder(&text).Encode(line); err != nil {
			l.Fatal(err)
		}
	}
	q, err := http.NewRequestWithContext(l.Context(), http.MethodPost, l.URL+mirrorindex.ConfirmedPath, &text)
	if err != nil {
		l.Fatal(err)
	}
	q.Header.Set("Content-Type", media)
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		l.Fatal(err)
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		l.Fatal(err)
	}
	return answer.StatusCode, string(said)
}

// has is the ledger's entry for what the Reader has of the Camera's old day, and false if there is none.
func (l *confirmLab) has() (wire.Totals, bool) {
	l.Helper()
	e, err := l.ledger.Get(l.Context(), wire.LedgerKey(archivetest.Camera, old, wire.StepPulled, archivetest.Reader))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return wire.Totals{}, false
	}
	if err != nil {
		l.Fatal(err)
	}
	entry, err := wire.Decode[wire.LedgerEntry](e.Value())
	if err != nil {
		l.Fatal(err)
	}
	return entry.Sum(), true
}

// The ledger counts a copy that a reader confirms as it counts one that was pushed: objects, and segments by their datagrams.
func TestConfirmed(t *testing.T) {
	t.Parallel()
	l := newConfirmLab(t)
	var want wire.Totals
	var entries []mirrorindex.Entry
	for i, path := range []string{"a.jpg", "b.jpg", "c.pcapng"} {
		r := l.Put(archivetest.Camera, path, path, func(r *wire.Record) {
			r.ReceivedAt = storm.Add(time.Duration(i) * time.Second)
			if path == "c.pcapng" {
				r.Segment = &wire.SegmentRange{Channel: "raw", Epoch: "1", First: 1, Last: 600, Messages: 600, Datagrams: 600}
			}
		})
		l.Wait(r)
		want.AddCopy(&r)
	}
	_, entries = list(l.Lab, old, nil)
	have := mirrorindex.SumOf(entries)
	line := mirrorindex.ConfirmLine{Instrument: archivetest.Camera, Day: old, Have: &have}
	run := mirrorindex.ConfirmLine{Run: &mirrorindex.ConfirmRun{VerifiedTo: storm, Owed: wire.MirrorOwed{Objects: 2}}}
	if status, body := l.confirm(archivetest.Token, mirrorindex.MediaLines, line, run); status != http.StatusOK || !strings.Contains(body, `"confirmed":true`) || !strings.HasSuffix(body, "{\"end\":true}\n") {
		t.Fatalf("%d %s", status, body)
	}
	if is, _ := l.has(); !is.SameObjects(want) || !is.SameSegments(want) || is.Objects != 2 || is.Datagrams != 600 {
		t.Errorf("the ledger has %+v, not %+v", is, want)
	}
	e, err := l.status.Get(t.Context(), wire.PullerStatusKey(archivetest.Reader))
	if err != nil {
		t.Fatal(err)
	}
	if s, err := wire.Decode[wire.PullerStatus](e.Value()); err != nil || !s.VerifiedTo.Equal(storm) || s.Owed.Objects != 2 || !s.ComparedAt.IsZero() {
		t.Errorf("reported: %+v, %v", s, err)
	}

	// An object that came later is not among its copies, and makes them no fewer.
	l.Wait(l.Put(archivetest.Camera, "d.jpg", "d.jpg", at(storm.Add(time.Minute))))
	if status, body := l.confirm(archivetest.Token, mirrorindex.MediaLines, line); status != http.StatusOK || !strings.Contains(body, `"confirmed":true`) {
		t.Errorf("with a newer object: %d %s", status, body)
	}
	if is, _ := l.has(); !is.SameObjects(want) {
		t.Errorf("with a newer object: %+v", is)
	}
	// Fewer or other objects confirm nothing; nor does a mirror that lost some.
	for what, have := range map[string]*mirrorindex.Sum{
		"one is missing":    {Count: have.Count - 1, Content: have.Content, Last: have.Last},
		"others":            {Count: have.Count, Content: wire.Digest{1}, Last: have.Last},
		"some were lost":    nil,
		"of a later time":   {Count: have.Count, Content: have.Content, Last: storm.Add(time.Hour)},
		"of no time at all": {Count: have.Count, Content: have.Content},
	} {
		if status, body := l.confirm(archivetest.Token, mirrorindex.MediaLines, line); status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		status, body := l.confirm(archivetest.Token, mirrorindex.MediaLines, mirrorindex.ConfirmLine{Instrument: archivetest.Camera, Day: old, Have: have})
		if is, noted := l.has(); status != http.StatusOK || strings.Contains(body, `"confirmed":true`) || !noted || is.Objects+is.Datagrams != 0 {
			t.Errorf("%s: %d %s; the ledger has %+v", what, status, body, is)
		}
	}
}

// A mirror whose clock is ahead has the objects up to now.
func TestConfirmedAhead(t *testing.T) {
	t.Parallel()
	l := newConfirmLab(t)
	ahead := time.Now().AddDate(1, 0, 0)
	run := mirrorindex.ConfirmLine{Run: &mirrorindex.ConfirmRun{VerifiedTo: ahead, ComparedAt: ahead}}
	if status, body := l.confirm(archivetest.Token, mirrorindex.MediaLines, run); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	is, _, err := stream.Load[wire.PullerStatus](t.Context(), l.status, wire.PullerStatusKey(archivetest.Reader))
	if err != nil || !is.VerifiedTo.Equal(is.ReportedAt) || !is.ComparedAt.Equal(is.ReportedAt) || is.ReportedAt.After(time.Now()) {
		t.Errorf("reported: %+v, %v", is, err)
	}
}

// Only a reader for whom the Site waits confirms anything, and only data that it pulls, may read, and that is there. Other data that it pulls is no
// error.
func TestConfirmedByOthers(t *testing.T) {
	t.Parallel()
	l := newConfirmLab(t)
	r := l.Put(archivetest.Camera, "a.jpg", "a", at(storm))
	l.Wait(r)
	_, entries := list(l.Lab, old, nil)
	have := mirrorindex.SumOf(entries)
	line := func(instrument string) mirrorindex.ConfirmLine {
		return mirrorindex.ConfirmLine{Instrument: instrument, Day: old, Have: &have}
	}
	camera := line(archivetest.Camera)
	run := mirrorindex.ConfirmLine{Run: &mirrorindex.ConfirmRun{VerifiedTo: time.Now()}}
	for _, c := range []struct {
		what, token, media string
		lines              []any
		status             int
	}{
		{"nobody in particular", "", mirrorindex.MediaLines, []any{camera, run}, http.StatusUnauthorized},
		{"another reader", otherToken, mirrorindex.MediaLines, []any{camera, run}, http.StatusForbidden},
		{"a wrong token", "0123456789abcdef", mirrorindex.MediaLines, []any{camera}, http.StatusUnauthorized},
		{"what a page sends without asking", archivetest.Token, "text/plain", []any{camera}, http.StatusUnsupportedMediaType},
		{"an instrument that it may not read", archivetest.Token, mirrorindex.MediaLines, []any{camera, line(hidden)}, http.StatusForbidden},
		{"one that it is not waited for", archivetest.Token, mirrorindex.MediaLines, []any{line(unpulled)}, http.StatusOK},
		{"a day of which there is nothing", archivetest.Token, mirrorindex.MediaLines, []any{mirrorindex.ConfirmLine{Instrument: archivetest.Camera, Day: "9999-12-31"}}, http.StatusOK},
		{"one that there is not", archivetest.Token, mirrorindex.MediaLines, []any{camera, line("none")}, http.StatusForbidden},
		{"another subject", archivetest.Token, mirrorindex.MediaLines, []any{camera, line("*")}, http.StatusForbidden},
		{"no day", archivetest.Token, mirrorindex.MediaLines, []any{camera, mirrorindex.ConfirmLine{Instrument: archivetest.Camera, Day: "2015-03-17.pulled.other", Have: &have}}, http.StatusBadRequest},
		{"the same twice", archivetest.Token, mirrorindex.MediaLines, []any{camera, camera}, http.StatusBadRequest},
		{"two runs", archivetest.Token, mirrorindex.MediaLines, []any{camera, run, run}, http.StatusBadRequest},
		{"nothing", archivetest.Token, mirrorindex.MediaLines, nil, http.StatusBadRequest},
	} {
		if status, body := l.confirm(c.token, c.media, c.lines...); status != c.status {
			t.Errorf("%s: %d %s, want %d", c.what, status, body, c.status)
		}
		if is, noted := l.has(); noted {
			t.Fatalf("%s: the ledger has %+v", c.what, is)
		}
	}
	if keys, err := l.ledger.Keys(t.Context()); !errors.Is(err, jetstream.ErrNoKeysFound) {
		t.Errorf("the ledger has %q, %v", keys, err)
	}
	if _, err := l.status.Get(t.Context(), wire.PullerStatusKey(archivetest.Reader)); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("a run is reported: %v", err)
	}
	if r, _ := root(l.Lab); r.Confirms {
		t.Error("the root tells everybody that it waits for them")
	}
}
