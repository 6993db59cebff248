// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"crypto/sha256"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// inPlace stores an object in a place that others manage, without metadata of ours.
func (l *lab) inPlace(key, body string, at time.Time) wire.Notice {
	l.t.Helper()
	if err := l.store.Put(l.t.Context(), key, strings.NewReader(body), int64(len(body)), objectstore.PutOptions{}); err != nil {
		l.t.Fatal(err)
	}
	return wire.Notice{Site: l.site, Instrument: camera, Record: wire.Record{
		ID: key, Key: key, Name: key, Size: int64(len(body)), Digest: sha256.Sum256([]byte(body)), State: wire.StateCurrent,
		ReceivedAt: at.UTC(), TimeSource: wire.TimeSourceReceived, Gateway: wire.ImportWriter, Incarnation: "run-1"}}
}

// An imported tree is listed in place, each object once however often it is announced, and nothing
// of it is ever removed: not a duplicate in it, not what it duplicates, and not what a gateway
// receives that equals something in it.
func TestImportedTree(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now()
	received := l.send(camera, now, "a frame of the gateway")
	tree := []wire.Notice{
		l.inPlace("2015/a#1.fits", "frame", now.AddDate(-10, 0, 0)),
		l.inPlace("2015/a", "another frame", now.AddDate(-10, 0, 0)),
		l.inPlace("2015/b", "frame", now.AddDate(-10, 0, 0)),
		l.inPlace("2026/today", "frame of today", now.Add(-time.Minute)),
		l.inPlace("2026/duplicate", "a frame of the gateway", now.Add(time.Minute)),
		l.inPlace("staging", "is a name too", now),
	}
	stop := l.run(l.config("a"))
	for _, n := range tree {
		l.announce(n)
	}
	l.await("all are listed", func() bool { return len(l.listed(camera)) == 1+len(tree) })
	stop()
	if err := l.js.DeleteStream(t.Context(), wire.NoticeStream(l.site)); err != nil {
		t.Fatal(err) // so that it takes the same notices again
	}
	nextEpoch()
	testenv.CreateSite(t, l.js, l.site)
	l.leaseTTL()
	for _, n := range tree {
		l.announce(n)
	}
	equal := l.send(camera, now.Add(time.Second), "frame of today")
	duplicate := l.send(camera, now.Add(2*time.Second), "a frame of the gateway")
	stop = l.run(l.config("b"))
	l.await("the duplicate of what a gateway received is removed", func() bool { return !slices.Contains(l.stored(camera), duplicate.Key) })
	forgotten := l.putObject(camera, object{now.Add(-time.Hour), "stored and never announced"}) // the sweep has begun and ended when it is listed
	l.await("a sweep went by", func() bool { return slices.Contains(l.keys(camera, wire.StateCurrent), forgotten.Key) })
	stop()

	var want []string
	for _, n := range tree {
		want = append(want, n.Key)
	}
	want = append(want, received.Key, equal.Key, forgotten.Key)
	slices.Sort(want)
	if got := l.keys(camera, wire.StateCurrent); !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	for _, r := range l.listed(camera) {
		if r.State == wire.StateCurrent {
			l.body(r)
		}
	}
}
