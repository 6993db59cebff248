// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
)

// block puts a folder that is not empty into the place of a file.
func block(t *testing.T, file string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(file), os.MkdirAll(file, 0o755), os.WriteFile(filepath.Join(file, "keep"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// A path that an rsync partner cannot replace keeps nothing else of its batch from being brought, verified and confirmed.
func TestBlockedPath(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	dir := l.toDaemon("")
	_, want := l.days(4)
	l.push(8)
	zeroed, blocked := filepath.Join(dir, "allsky-1/00.jpg"), filepath.Join(dir, "allsky-1/02.jpg")
	info, err := os.Stat(zeroed)
	if err == nil {
		err = errors.Join(os.WriteFile(zeroed, make([]byte, info.Size()), 0o600), os.Chtimes(zeroed, info.ModTime(), info.ModTime()), os.Remove(filepath.Join(dir, "allsky-1/01.jpg")))
	}
	if err != nil {
		t.Fatal(err)
	}
	block(t, blocked)
	block(t, filepath.Join(dir, "allsky-1/new.jpg"))
	for _, name := range []string{"a.jpg", "new.jpg", "z.jpg"} {
		l.Wait(l.Put(archivetest.Camera, name, name, at(storm.AddDate(0, 0, 2).Add(time.Hour))))
	}
	l.force = true
	var p *push.Problem
	if err := l.run(); !errors.As(err, &p) || p.Reason != wire.MirrorReasonProtocol || !errors.Is(err, push.ErrOwed) || !strings.Contains(err.Error(), "2 objects") {
		t.Errorf("%v", err)
	}
	delete(want, "allsky-1/02.jpg")
	want["allsky-1/02.jpg/keep"], want["allsky-1/new.jpg/keep"], want["allsky-1/a.jpg"], want["allsky-1/z.jpg"] = "", "", "a.jpg", "z.jpg"
	l.want("but for what is blocked", want)
	for day, objects := range map[wire.Day]uint64{"2015-03-17": 3, "2015-03-18": 4, "2015-03-19": 2} {
		if has := l.mirrored(day); has.Objects != objects {
			t.Errorf("of %s the partner has %d, want %d", day, has.Objects, objects)
		}
	}
	if owed := l.last.Owed(); l.force && owed.Objects != 2 {
		t.Errorf("owed: %+v", owed)
	}
	if err := errors.Join(os.RemoveAll(blocked), os.RemoveAll(filepath.Join(dir, "allsky-1/new.jpg"))); err != nil {
		t.Fatal(err)
	}
	l.force = false
	l.push(2)
}

// A run that only verifies says of the files that differ alone that they do.
func TestBlockedVerify(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	dir := l.toDaemon("")
	l.days(4)
	l.push(8)
	block(t, filepath.Join(dir, "allsky-1/02.jpg"))
	l.verifyOnly = true
	if err := l.run(); !errors.Is(err, push.ErrOwed) || l.last.Differing() != 1 {
		t.Errorf("%v, %d differ", err, l.last.Differing())
	}
	if has := l.mirrored("2015-03-17"); has.Objects != 3 {
		t.Errorf("ledger: %+v", has)
	}
}
