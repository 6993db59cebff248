// SPDX-License-Identifier: Apache-2.0

//go:build linux

package importer

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

const prefix = "old trees/allsky #1/"

func placeKey(f frame) string { return prefix + f.name }

// stat returns what the store says of an object.
func (l *lab) stat(key string) objectstore.Info {
	l.t.Helper()
	for info, err := range l.store.List(l.t.Context(), key, "") {
		if err != nil || info.Key != key {
			l.t.Fatalf("%s: %v, %v", key, info, err)
		}
		return info
	}
	l.t.Fatalf("%s is not there", key)
	return objectstore.Info{}
}

// TestInPlace: objects are listed where they lie, and again with nothing changed
// and with some changed.
func TestInPlace(t *testing.T) {
	l := newLab(t)
	good := frames(40)
	l.putObjects(prefix, good...)
	l.putObjects(prefix, frame{name: "README", body: "no frame"}, frame{name: "2015/03/", body: ""}, frame{name: "2015/03/17/rank_0001.fits", body: ""})
	tree, settled := "archive/"+strings.TrimSuffix(prefix, "/"), []string{"--in-place", "--settle", "0s"}
	size := uint64(0)
	for i := range good {
		size += uint64(len(good[i].body))
		good[i].at = l.stat(placeKey(good[i])).ModifiedAt
	}
	if young, err := l.run(tree, "--in-place", "--settle", "1h"); err == nil || young.Registered != 0 || young.reasons[good[0].name] != TooYoung {
		t.Errorf("of objects that were written just now: %+v, %v", young.Summary, err)
	}
	first, err := l.run(tree, settled...)
	if err == nil || first.reasons["README"] != NameDoesNotFit || first.reasons["2015/03/17/rank_0001.fits"] != Empty || len(first.reasons) != 2 {
		t.Errorf("%v, %v", first.reasons, err)
	}
	first.wants(t, Summary{Seen: 42, Registered: 40, Bytes: size, BytesRead: size})
	all := l.await(40)
	for _, f := range good {
		named := f
		named.name = placeKey(f)
		r := all[placeKey(f)]
		if len(r) != 1 || r[0].Name != placeKey(f) || r[0].ID != placeKey(f) || !r[0].ReceivedAt.Equal(f.at) || r[0].TimeSource != wire.TimeSourceName || r[0].DigestSource != "" {
			t.Errorf("%s is listed as %+v", f.name, r)
		}
	}
	l.compareLedger(all)
	l.compareBodies(placeKey, good[0], good[39])
	if out, err := l.archive("ls", "-o", "wide"); err != nil || strings.Count(out, prefix) != 40 {
		t.Errorf("ls: %v\n%s", err, out)
	}

	second, err := l.run(tree, settled...)
	if err == nil {
		t.Error("what cannot be placed is no error the second time")
	}
	second.wants(t, Summary{Seen: 42, Unchanged: 40})

	changed, touched, added := good[3], good[5], frames(41)[40]
	changed.body = "frame 3, reduced again"
	time.Sleep(5 * time.Millisecond) // another time than before
	l.putObjects(prefix, changed, touched, added)
	third, _ := l.run(tree, settled...)
	third.wants(t, Summary{Seen: 43, Registered: 2, Versions: 1, Unchanged: 38, Touched: 1,
		Bytes: uint64(len(changed.body) + len(added.body)), BytesRead: uint64(len(changed.body) + len(added.body) + len(touched.body))})
	all = l.await(42)
	if got := all[placeKey(changed)]; len(got) != 2 || got[0].ID == got[1].ID {
		t.Errorf("the changed one is listed as %+v", got)
	}
	l.compareLedger(all)
	l.compareBodies(placeKey, changed, added)
	if _, err := l.archive("get", fmt.Sprintf("%x", sha256.Sum256([]byte(good[3].body))), "--file", "-"); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("bytes that were overwritten are found: %v", err)
	}
	if _, err := l.archive("get", prefix+"README", "--file", "-"); err == nil || !strings.Contains(err.Error(), "does not list") {
		t.Errorf("what was not placed is found: %v", err)
	}
}

// TestWholeBucket: what Substorm itself keeps in the bucket is none of the tree.
func TestWholeBucket(t *testing.T) {
	l, dir := newLab(t), t.TempDir()
	of := frames(4)
	writeFiles(t, dir, of[:2]...)
	l.must(dir)
	l.await(2)
	l.putObjects("", of[2:]...)
	l.must("archive", "--in-place", "--settle", "0s").wants(t, Summary{Seen: 2, Registered: 2, Bytes: 14, BytesRead: 14})
	l.compareLedger(l.await(4))
}

// TestChecksums: a list that lies imports nothing unless it is trusted, and then
// the record says whom it believed.
func TestChecksums(t *testing.T) {
	l, dir := newLab(t), t.TempDir()
	of := frames(4)
	writeFiles(t, dir, of...)
	l.putObjects(prefix, of...)
	sum := func(body string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(body))) }
	file := filepath.Join(t.TempDir(), "SHA256SUMS")
	lines := fmt.Sprintf("%s  %s\n%s *./%s\n%s  %s\n", sum(of[0].body), of[0].name, sum("a lie"), of[1].name, sum("x"), "2015/gone.fits")
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	tree := "archive/" + prefix
	for name, args := range map[string][]string{"folder": {dir}, "in place": {tree, "--in-place", "--settle", "0s"}} {
		got, err := l.run(args[0], append(args[1:], "--checksums", file)...)
		if err == nil || got.reasons[of[1].name] != ChecksumDiffers || got.reasons["2015/gone.fits"] != Missing || len(got.reasons) != 2 {
			t.Errorf("%s: %v, %v", name, got.reasons, err)
		}
		got.wants(t, Summary{Seen: 4, Registered: 3, Bytes: 21, BytesRead: 28})
	}
	all := l.await(6)
	for key, want := range map[string]wire.Completeness{
		placeKey(of[0]): wire.CompletenessVerified, namedKey(of[0]): wire.CompletenessVerified,
		placeKey(of[2]): wire.CompletenessUnverified, namedKey(of[2]): wire.CompletenessUnverified} {
		if r := all[key]; len(r) != 1 || r[0].Completeness != want || r[0].DigestSource != "" {
			t.Errorf("%s is listed as %+v", key, r)
		}
	}
	trusting, err := l.run(tree, "--in-place", "--settle", "0s", "--checksums", file, "--trust-checksums")
	if err == nil || len(trusting.reasons) != 1 {
		t.Errorf("%v, %v", trusting.reasons, err)
	}
	trusting.wants(t, Summary{Seen: 4, Unchanged: 3, Registered: 1, Bytes: 7})
	all = l.await(7)
	if r := all[placeKey(of[1])]; len(r) != 1 || r[0].DigestSource != wire.DigestSourceListed || r[0].Digest.String() != sum("a lie") || r[0].Completeness != wire.CompletenessUnverified {
		t.Errorf("the lie is listed as %+v", r)
	}
	if _, err := l.archive("get", placeKey(of[1]), "--file", "-"); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("the lie is not found out when the object is fetched: %v", err)
	}
	l.compareLedger(all)
}

// TestNamesThatTell: digests and instruments in names are compared.
func TestNamesThatTell(t *testing.T) {
	l, dir := newLab(t), t.TempDir()
	at := time.Now().Add(-time.Hour)
	right := frame{"allsky-1/" + fmt.Sprintf("%x", sha256.Sum256([]byte("right")))[:16], "right", at}
	wrong := frame{"allsky-1/0123456789abcdef", "wrong", at}
	other := frame{"mag-1/0123456789abcdef", "other", at}
	writeFiles(t, dir, right, wrong, other)
	got, err := l.run(dir, "--name-template", "{instrument}/{digest:16}")
	if err == nil || got.reasons[wrong.name] != ChecksumDiffers || got.reasons[other.name] != OtherInstrument || got.Registered != 1 {
		t.Errorf("%v, %v", got.reasons, err)
	}
	for _, r := range l.await(1)[namedKey(right)] {
		if r.Completeness != wire.CompletenessVerified || r.TimeSource != wire.TimeSourceReceived || r.ObservedFrom != nil {
			t.Errorf("listed as %+v", r)
		}
	}
}
