// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// keptCamera has objects that must outlive whatever is deleted.
const (
	keptCamera = "kept-camera"
	keptPort   = 30131
)

// kept returns the digests of what is listed of keptCamera. If nothing is listed, it sends something first: a listing is closed once a
// minute.
func (l *lab) kept(t testing.TB) []string {
	t.Helper()
	if listed := l.digests(t, keptCamera); len(listed) > 0 {
		return listed
	}
	return l.sendSome(t, keptCamera, keptPort, 5)
}

// TestDeletedInstrumentKeepsItsArchive: deleting the resource deletes no
// observation, and applying it again continues the archive.
func TestDeletedInstrumentKeepsItsArchive(t *testing.T) {
	l := theLab
	before := l.kept(t)

	l.kubectl(t, "delete", "instrument", keptCamera, "--timeout="+patienceText)
	if diff := cmp.Diff(before, l.digests(t, keptCamera)); diff != "" {
		t.Fatalf("the listing changed with the deletion (-before +after):\n%s", diff)
	}
	l.apply(t, instrumentTCP(keptCamera, keptPort))
	l.waitReady(t, "instrument/"+keptCamera)
	if diff := cmp.Diff(before, l.digests(t, keptCamera)); diff != "" {
		t.Fatalf("the listing changed with the new resource (-before +after):\n%s", diff)
	}
}

// TestUninstall: `helm uninstall` with resources present ends, leaves every object, stream and volume, and a reinstall continues from
// there.
func TestUninstall(t *testing.T) {
	l := theLab
	before := l.kept(t)

	for _, release := range []string{"demo", "substorm"} {
		out, err := l.output(l.helmBin, "uninstall", release, "-n", namespace, "--wait", "--timeout", patienceText)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(out)
	}
	if left := l.kubectl(t, "get", "instrument", keptCamera, "-o", "name"); left == "" {
		t.Fatal("the Instrument went with the charts")
	}
	if err := l.installSubstorm(); err != nil {
		t.Fatal(err)
	}
	l.waitReady(t, "instrument/"+keptCamera)
	if diff := cmp.Diff(before, l.digests(t, keptCamera)); diff != "" {
		t.Fatalf("the listing changed with the reinstall (-before +after):\n%s", diff)
	}
	after := l.sendSome(t, keptCamera, keptPort, 5)
	if len(after) != len(before)+5 {
		t.Fatalf("%d objects listed after five more than %d", len(after), len(before))
	}
}

// sendSome applies an instrument, sends it n new objects and returns the
// digests of all that is listed once these are.
func (l *lab) sendSome(t testing.TB, instrument string, port, n int) []string {
	t.Helper()
	l.apply(t, instrumentTCP(instrument, port))
	l.waitReady(t, "instrument/"+instrument)
	listed := len(l.digests(t, instrument))
	report := filepath.Join(t.TempDir(), "receipts.jsonl")
	if _, err := l.output(l.substorm, "send", "--quiet", "--to", join(l.nodeAddresses(t), port),
		"--report", report, writeObjects(t, n, 32<<10)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if got := len(l.digests(t, instrument)); got != listed+n {
			return fmt.Errorf("%d objects of %s listed, want %d", got, instrument, listed+n)
		}
		return nil
	})
	return l.digests(t, instrument)
}
