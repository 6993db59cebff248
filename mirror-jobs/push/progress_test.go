// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/s3"
)

// The bytes of an object count while it is moved, once, and not where it could not be moved.
func TestMoving(t *testing.T) {
	t.Parallel()
	p := &push.Progress{}
	want := func(what string, objects, bytes, owed int64) {
		t.Helper()
		p.Listed()
		if r := p.Report(); r.Objects != objects || r.Bytes != bytes || p.Owed().Bytes != owed {
			t.Errorf("%s: %+v, %+v", what, r, p.Owed())
		}
	}
	p.Owe(100)
	p.Owe(0) // its size is unknown
	known, unknown := p.Begin(100), p.Begin(0)
	known.Move(60)
	want("on its way", 0, 60, 40)
	known.Move(60)
	want("a part came twice", 0, 100, 0)
	known.End(true)
	want("it has come", 1, 100, 0)
	unknown.Resize(50)
	unknown.Move(30)
	want("its size is known by now", 1, 130, 20)
	unknown.Resize(20)
	want("it is smaller", 1, 120, 0)
	unknown.End(false)
	want("it could not be moved", 1, 100, 20)
	var nobody *push.Moving
	nobody.Move(1)
	nobody.Resize(1)
}

// Bytes that go to a bucket count before all of an object is there.
func TestProgressOfLarge(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	large := string(bytes.Repeat([]byte("large 17 bytes..\n"), 2<<20))
	var between atomic.Int64
	l.mover = s3.New(s3.Config{Store: l.MinIO.Bucket(t, "partner"), Connections: 1, Moved: func(int) {
		if r := l.last.Report(); r.Objects == 0 && r.Bytes > 0 && r.Bytes < int64(len(large)) {
			between.Add(1)
		}
	}})
	l.Wait(l.Put(archivetest.Camera, "large.fits", large, at(storm)))
	l.push(1)
	if r := l.last.Report(); between.Load() == 0 || r.Bytes != int64(len(large)) || l.last.Owed().Bytes != 0 {
		t.Errorf("it was seen on its way %d times; %+v", between.Load(), r)
	}
}
