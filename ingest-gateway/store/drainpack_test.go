// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/pack"
	"github.com/substorm/substorm/internal/wire"
)

func digestsOf(objects [][]byte) map[wire.Digest]int {
	all := map[wire.Digest]int{}
	for _, data := range objects {
		all[sha256.Sum256(data)]++
	}
	return all
}

func (v *running) awaitEmptySpool(t *testing.T) {
	t.Helper()
	await(t, "the spool is empty", func() (bool, string) {
		st := v.cfg.Spool.Stats()
		return st.Objects == 0, fmt.Sprintf("%+v", st)
	})
}

// members counts in how many packs of the bucket each ID is.
func (l *lab) members(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{}
	for info, err := range l.objects.List(t.Context(), "packs/", "") {
		if err != nil {
			t.Fatal(err)
		}
		for n, err := range pack.Members(t.Context(), l.objects, info.Key, info.Size) {
			if err != nil {
				t.Fatal(err)
			}
			all[n.ID]++
		}
	}
	return all
}

// Objects that waited in the spool drain in packs if they would have been packed without
// it, equal objects too, and the rest drain one by one.
func TestDrainInPacks(t *testing.T) {
	for _, acknowledge := range []string{"StoredOrSpooled", "Spooled"} {
		t.Run(acknowledge, func(t *testing.T) {
			l := newLabAlone(t, enough)
			l.packBelow = packBelow
			v := l.start(t, t.TempDir(), "first", acknowledge)
			l.minio.Kill()
			v.mustCommit(t, random(1, 1000)) // it finds the store away
			objects := smallObjects(600)
			if n := v.commitAll(t, objects); n != len(objects) {
				t.Fatalf("%d receipts of %d objects", n, len(objects))
			}
			objects = append(objects, random(1, 1000), random(2, packBelow+1), random(3, 0))
			for _, data := range objects[601:] {
				v.mustCommit(t, data)
			}
			l.minio.Start()
			v.awaitEmptySpool(t)
			v.awaitColumns(t, uint64(len(objects)))
			if diff := cmp.Diff(digestsOf(objects), l.checkArchive(t)); diff != "" {
				t.Errorf("announced (-sent +announced):\n%s", diff)
			}
			packs, alone := l.keys(t, "packs/"), l.keys(t, "o/")
			if len(packs) > len(objects)/8 || len(alone) != 2 {
				t.Errorf("%d objects lie in %d packs, and %d by themselves", len(objects), len(packs), len(alone))
			}
			for id, n := range l.members(t) {
				if n != 1 {
					t.Errorf("%s is in %d packs", id, n)
				}
			}
		})
	}
}

// The gateway is killed when packs from the spool are stored and nothing in them
// is announced: the next one stores them again, and each object is announced and
// counted once, under the ID that it had.
func TestKilledWithPacksStored(t *testing.T) {
	l := newLabAlone(t, enough)
	l.packBelow = packBelow
	dir, killed := t.TempDir(), t.TempDir()
	first := l.start(t, dir, "first", "Spooled")
	l.minio.Pause()
	objects := smallObjects(300)
	if n := first.commitAll(t, objects); n != len(objects) {
		t.Fatalf("%d receipts of %d objects", n, len(objects))
	}
	l.nats.Kill()
	l.minio.Continue()
	// Each of those that drain waits for JetStream with its pack: others come only after that.
	await(t, "as many packs are stored as drain at a time, or all objects lie in packs", func() (bool, string) {
		packs, n := len(l.keys(t, "packs/")), len(l.members(t))
		return packs == drainedPacks || n == len(objects), fmt.Sprintf("%d of %d objects in %d packs", n, len(objects), packs)
	})
	stored := l.members(t)
	copyVolume(t, dir, killed)
	first.stop()
	l.nats.Start()
	if n := l.announced(t); n != 0 {
		t.Fatalf("%d are announced", n)
	}
	second := l.start(t, killed, "second", "Spooled")
	second.awaitEmptySpool(t)
	second.awaitColumns(t, uint64(len(objects)))
	if diff := cmp.Diff(digestsOf(objects), l.checkArchive(t)); diff != "" {
		t.Errorf("announced (-sent +announced):\n%s", diff)
	}
	for id, n := range l.members(t) {
		if want := 1 + stored[id]; n != want {
			t.Errorf("%s is in %d packs, want %d", id, n, want)
		}
	}
}

// The answer to a pack is lost: it is not stored under another key.
func TestDrainedPackAnswerLost(t *testing.T) {
	l := newLab(t, enough)
	l.packBelow = packBelow
	v := l.start(t, t.TempDir(), "first", "Spooled")
	l.wire.loseAnswers("PUT /"+l.bucket+"/packs/", 1)
	v.mustCommit(t, random(1, 1000))
	v.awaitEmptySpool(t)
	if l.wire.lost() == 0 {
		t.Error("no answer was lost")
	}
	if keys := l.keys(t, "packs/"); len(keys) != 1 {
		t.Errorf("packs %v", keys)
	}
	l.checkArchive(t)
	v.awaitColumns(t, 1)
}

// A record that rots on the disk is set apart, and the others of its pack drain.
func TestPackedRecordRots(t *testing.T) {
	l := newLabAlone(t, enough)
	l.packBelow = packBelow
	dir := t.TempDir()
	v := l.start(t, dir, "first", "Spooled")
	l.minio.Pause()
	objects := smallObjects(drainedPacks)
	for i, data := range objects { // a pack each, which keep all of those busy that read
		v.mustCommit(t, data)
		await(t, "its pack is on its way", func() (bool, string) {
			n := v.packers.number.Load()
			return n == uint64(i+1), fmt.Sprintf("%d packs", n)
		})
	}
	more := smallObjects(40)[drainedPacks:]
	if n := v.commitAll(t, more); n != len(more) {
		t.Fatalf("%d receipts of %d objects", n, len(more))
	}
	rotten := more[2] // of 32 KiB
	rot(t, dir, rotten)
	l.minio.Continue()
	v.awaitEmptySpool(t)
	objects = append(objects, more...)
	want := digestsOf(objects)
	delete(want, sha256.Sum256(rotten))
	await(t, "the ledger says that one is lost", func() (bool, string) {
		s := v.sum(t)
		return s.Objects == uint64(len(objects)-1) && s.Unfinished[wire.CauseCorrupt] == 1, fmt.Sprintf("%+v", s)
	})
	if diff := cmp.Diff(want, l.checkArchive(t)); diff != "" {
		t.Errorf("announced (-sent +announced):\n%s", diff)
	}
}

// rot changes a bit of an object in a spool.
func rot(t *testing.T, dir string, object []byte) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "spool", "*.log"))
	if err != nil || len(paths) != 1 {
		t.Fatal(paths, err)
	}
	log, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	at := int64(bytes.Index(log, object)) + 100
	f, err := os.OpenFile(paths[0], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{log[at] ^ 1}, at); err != nil {
		t.Fatal(err)
	}
}

// Copies of objects that their gateway would have packed drain in packs, once for all gateways that
// bring them, under the IDs that the gateway will give them.
func TestBringCopiesInPacks(t *testing.T) {
	l := newLabAlone(t, enough)
	l.packBelow = packBelow
	dir, lost := t.TempDir(), t.TempDir()
	owner := l.start(t, dir, "first", "Spooled")
	l.minio.Kill() // paused, it might store afterwards what the owner sent
	objects := smallObjects(100)
	objects = append(objects, random(200, 200_000))
	if n := owner.commitAll(t, objects); n != len(objects) {
		t.Fatalf("%d receipts of %d objects", n, len(objects))
	}
	copyVolume(t, dir, lost)
	copyVolume(t, dir, filepath.Join(lost, "copies"))
	owner.stop()
	kept, err := spool.Open(spool.Config{Dir: filepath.Join(lost, "copies", "spool"), Size: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	var entries []*spool.Entry
	for range objects {
		e, err := kept.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	l.minio.Start()
	peer := l.start(t, t.TempDir(), "peer", "Spooled")
	peer.cfg.Gateway = "north-1"
	for range 2 {
		for i, err := range peer.DrainCopies(t.Context(), entries) {
			if err != nil {
				t.Errorf("%s: %v", entries[i].Notice.ID, err)
			}
		}
	}
	if diff := cmp.Diff(digestsOf(objects), l.checkArchive(t)); diff != "" {
		t.Errorf("announced (-sent +announced):\n%s", diff)
	}
	for _, n := range l.noticesIn(t) {
		if n.Gateway != "north-0" || n.BroughtBy != "north-1" && n.InPack() {
			t.Errorf("%s: received by %s, brought by %s", n.ID, n.Gateway, n.BroughtBy)
		}
	}
	if packs := l.keys(t, "packs/"); len(packs) > 20 {
		t.Errorf("%d packs", len(packs))
	}
	owner = l.start(t, lost, "second", "Spooled") // it returns
	owner.awaitEmptySpool(t)
	if diff := cmp.Diff(digestsOf(objects), l.checkArchive(t)); diff != "" {
		t.Errorf("announced after its return (-sent +announced):\n%s", diff)
	}
}
