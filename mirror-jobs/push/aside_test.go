// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"context"
	"crypto/sha256"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
)

var timeOfRun = regexp.MustCompile(`~\d{8}T\d{6}Z$`)

// wantAside is want where the name of a file that was set aside ends with ~TIME.
func (l *lab) wantAside(what string, want map[string]string) {
	l.Helper()
	got := map[string]string{}
	for name, content := range l.has() {
		got[timeOfRun.ReplaceAllString(name, "~TIME")] = content
	}
	if diff := cmp.Diff(want, got); diff != "" {
		l.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// deliver puts a file of another origin at the partner.
func (l *lab) deliver(path, content string) {
	l.Helper()
	f := push.File{Path: path, Size: int64(len(content)), Modified: storm.AddDate(-1, 0, 0), Digest: sha256.Sum256([]byte(content)),
		Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }}
	err := l.mover.Deliver(l.Context(), []push.File{f}, false, func(_ int, err error) {
		if err != nil {
			l.Error(err)
		}
	})
	if err != nil {
		l.Fatal(err)
	}
}

// The copy of an object that expired stays when its name is used again: it may be the last one. Later versions take the place of each other.
func TestNameUsedAgainAfterExpiry(t *testing.T) {
	byEach(t, func(t *testing.T, l *lab) {
		one := l.Put(archivetest.Camera, "c.txt", "one", named("c.txt"), at(storm))
		l.Wait(one)
		l.push(1)
		l.become(&one, wire.StatePurged, "expired: kept for 48h0m0s", func(r *wire.Record) { r.ChangedBy = wire.ByRetention })
		later := time.Now().UTC().Add(time.Hour)
		two := l.Put(archivetest.Camera, "c.txt", "two", named("c.txt"), at(later), newer(2, one))
		l.Wait(two)
		l.push(1)
		want := map[string]string{"allsky-1/c.txt~TIME": "one", "allsky-1/c.txt": "two"}
		l.wantAside("both", want)
		l.push(0)
		three := l.Put(archivetest.Camera, "c.txt", "three", named("c.txt"), at(later.Add(time.Second)), newer(3, two))
		l.Wait(three)
		l.push(1)
		want["allsky-1/c.txt"] = "three"
		l.wantAside("the first, and the current one", want)
		if err := l.run(); err != nil {
			t.Error(err)
		}
	})
}

// A file of another origin stays where the first version of an object comes: the Site may have been installed again under its code. What is there
// already stays as it is.
func TestOriginWentBack(t *testing.T) {
	byEach(t, func(t *testing.T, l *lab) {
		l.deliver("allsky-1/a.txt", "same")
		l.deliver("allsky-1/b.txt", "of before")
		l.Put(archivetest.Camera, "a.txt", "same", named("a.txt"), at(storm))
		l.Wait(l.Put(archivetest.Camera, "b.txt", "of now", named("b.txt"), at(storm.Add(time.Second))))
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"allsky-1/a.txt": "same", "allsky-1/b.txt": "of now", "allsky-1/b.txt~TIME": "of before"}
		l.wantAside("all three", want)
		l.force = true
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		l.wantAside("with force", want)
	})
}
