// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

// Objects in the spool that the store never takes, or that are not what was received,
// go to quarantine, and the others drain.
func TestUnstorable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := newLab(t, 5*time.Second)
	v := l.start(t, dir, "one", storedOrSpooled)
	put := func(i int, change func(*wire.Notice)) wire.Notice {
		t.Helper()
		data := random(byte(i), 1000)
		n := wire.Notice{Site: "hub", Instrument: "camera", Record: wire.Record{
			Size: int64(len(data)), Digest: sha256.Sum256(data), State: wire.StateCurrent, MediaType: "image/jpeg",
			ReceivedAt: time.Now().UTC(), TimeSource: wire.TimeSourceReceived, Gateway: "north-0", Incarnation: "one",
		}}
		change(&n)
		n.Key = wire.RawKey("hub", "camera", n.ReceivedAt, n.Digest)
		n.ID = n.Key
		v.ledger.ObjectBegun("camera", n.ReceivedAt)
		if err := v.countInSpool(n, "", v.cfg.Spool.Copied(n, "", bytes.NewReader(data), n.Size)); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const each = drainAlone + 2
	for i := range each {
		put(i, func(n *wire.Notice) { n.Path = strings.Repeat("p", 3000) }) // S3 takes 2 KB of metadata
		put(100+i, func(n *wire.Notice) { n.Digest = sha256.Sum256(random(byte(i), 10)) })
	}
	good := put(255, func(*wire.Notice) {})
	await(t, "the spool is empty", func() (bool, string) {
		st := v.cfg.Spool.Stats()
		return st.Objects == 0, fmt.Sprintf("%+v", st)
	})
	if st := v.cfg.Spool.Stats(); st.Quarantined != 2*each {
		t.Errorf("%+v, want %d in quarantine", st, 2*each)
	}
	if _, err := l.objects.Head(t.Context(), good.Key); err != nil {
		t.Error(err)
	}
	if n := l.announced(t); n != 1 {
		t.Errorf("%d objects are announced, 1 is whole", n)
	}
	await(t, "the ledger counts them", func() (bool, string) {
		s := v.sum(t)
		return s.Objects == 1 && s.Unfinished[wire.CauseCorrupt] == 2*each, fmt.Sprintf("%+v", s)
	})
}

// rotScratch changes what is in scratch: unlinked files of this process.
func rotScratch(t *testing.T) (changed int) {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil || !strings.Contains(to, "/scratch/") || !strings.HasSuffix(to, "(deleted)") {
			continue
		}
		f, err := os.OpenFile(link, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		if _, err := f.ReadAt(b, 100); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 1
		if _, err := f.WriteAt(b, 100); err != nil {
			t.Fatal(err)
		}
		f.Close()
		changed++
	}
	return changed
}

// An object that scratch gives back otherwise than it was written has no receipt, neither as a whole nor in parts.
func TestScratchRots(t *testing.T) {
	l := newLab(t, 5*time.Second)
	v := l.start(t, t.TempDir(), "one", spooledOnly)
	for name, size := range map[string]int{"small": 300_000, "in parts": PartSize + 1000, "in many": 2*PartSize + 1000} {
		t.Run(name, func(t *testing.T) {
			data := random(7, size)
			o, err := v.receive(t, data)
			if err != nil {
				t.Fatal(err)
			}
			if err := o.Yield(); err != nil {
				t.Fatal(err)
			}
			o.Whole(wire.CompletenessVerified)
			if rotScratch(t) == 0 {
				t.Fatal("nothing lies in scratch")
			}
			if r, _, err := o.Commit(t.Context()); err == nil {
				t.Errorf("receipt %+v", r)
			}
			// Untouched, it has one.
			o, err = v.receive(t, data)
			if err != nil {
				t.Fatal(err)
			}
			if err := o.Yield(); err != nil {
				t.Fatal(err)
			}
			if r, _, err := o.Commit(t.Context()); err != nil || r.Digest != sha256.Sum256(data) {
				t.Errorf("receipt %+v, %v", r, err)
			}
		})
	}
}

// A pack that the store never takes is given up: its members drain by themselves, and
// those that the store does not take either go to quarantine.
func TestUnstorablePack(t *testing.T) {
	t.Parallel()
	l := newLabAlone(t, 5*time.Second)
	l.packBelow = packBelow
	l.cfg.Gateway = strings.Repeat("g", 300) // S3 servers on a file system take no such name: packs bear it
	v := l.start(t, t.TempDir(), "one", "Spooled")
	put := func(i int, change func(*wire.Notice)) wire.Notice {
		t.Helper()
		data := random(byte(i), 1000)
		n := wire.Notice{Site: "hub", Instrument: "camera", Record: wire.Record{
			Size: int64(len(data)), Digest: sha256.Sum256(data), State: wire.StateCurrent, MediaType: "image/jpeg",
			ReceivedAt: time.Now().UTC(), TimeSource: wire.TimeSourceReceived, Gateway: "north-0", Incarnation: "one",
		}}
		change(&n)
		n.Key = wire.RawKey("hub", "camera", n.ReceivedAt, n.Digest)
		n.ID = wire.SpooledID(n)
		v.ledger.ObjectBegun("camera", n.ReceivedAt)
		if err := v.countInSpool(n, "", v.cfg.Spool.Copied(n, "", bytes.NewReader(data), n.Size)); err != nil {
			t.Fatal(err)
		}
		return n
	}
	l.minio.Pause()
	good, bad := map[wire.Digest]int{}, 3
	for i := range 20 {
		good[put(i, func(*wire.Notice) {}).Digest] = 1
	}
	for i := range bad {
		put(100+i, func(n *wire.Notice) { n.Path = strings.Repeat("p", 3000) }) // more metadata than S3 takes
	}
	l.minio.Continue()
	v.awaitEmptySpool(t)
	if st := v.cfg.Spool.Stats(); st.Quarantined != int64(bad) {
		t.Errorf("%+v, want %d in quarantine", st, bad)
	}
	if diff := cmp.Diff(good, l.checkArchive(t)); diff != "" {
		t.Errorf("announced (-sent +announced):\n%s", diff)
	}
	await(t, "the ledger counts them", func() (bool, string) {
		s := v.sum(t)
		return s.Objects == uint64(len(good)) && s.Unfinished[wire.CauseCorrupt] == uint64(bad), fmt.Sprintf("%+v", s)
	})
}
