// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// list is a sender's: what was sent to a Site and has to be kept, by digest, and what each was.
type list map[wire.Digest]string

// sends puts an object and lists it.
func (l list) sends(m *mirrored, name, text string) {
	m.t.Helper()
	m.send("camera", name, []byte(text))
	m.has("/archive/camera/n/"+name, []byte(text)) // a mirror that runs before it is listed does not get it
	l[sha256.Sum256([]byte(text))] = name + ": " + text
}

// imports has files of some days ago imported, and lists them.
func (l list) imports(m *mirrored, days int) {
	m.t.Helper()
	dir, at := m.t.TempDir(), time.Now().AddDate(0, 0, -days)
	for i := range 5 {
		name, text := fmt.Sprintf("old-%d.jpg", i), fmt.Sprintf("%s: old %d", m.code, i)
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			m.t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			m.t.Fatal(err)
		}
		l[sha256.Sum256([]byte(text))] = name + ": " + text
	}
	m.substorm("import", dir, "--instrument", "camera", "--name-template", "{name}", "--quiet")
}

// keeps fails unless a Site gives the bytes of all that is listed, from its copy of another Site's camera.
func (l list) keeps(m *mirrored, instrument, after string) {
	m.t.Helper()
	eventually(m.t, m.code+" keeps all after "+after, func() error {
		lacks := map[wire.Digest]string{}
		for digest, is := range l {
			lacks[digest] = is
		}
		for _, r := range m.records(instrument) {
			for _, version := range []string{"", "?version=1", "?version=2", "?version=3"} {
				status, body, _ := m.get("/archive/" + instrument + "/" + r.Published() + version)
				if status == http.StatusOK && sha256.Sum256(body) == r.Digest {
					delete(lacks, r.Digest)
				}
			}
		}
		if len(lacks) > 0 {
			return fmt.Errorf("of %d it lacks %q", len(l), lacks)
		}
		return nil
	})
}

// pair are two Sites that mirror each other, and what was sent to each.
type pair struct {
	t        *testing.T
	a, b     *mirrored
	ofA, ofB list
}

func newPair(t *testing.T, days int) *pair {
	p := &pair{t: t, a: newMirrored(t, "kiruna"), b: newMirrored(t, "thule"), ofA: list{}, ofB: list{}}
	for here, there := range map[*mirrored]*mirrored{p.a: p.b, p.b: p.a} {
		here.write("partner.yaml", fmt.Sprintf(pullPartner, here.code, there.code, there.URL))
	}
	for m, sent := range map[*mirrored]list{p.a: p.ofA, p.b: p.ofB} {
		m.ready("site/"+m.code, "instrument/camera", "mirrorpartner/from-"+map[*mirrored]string{p.a: "thule", p.b: "kiruna"}[m])
		sent.imports(m, days)
		for i := range 3 {
			sent.sends(m, fmt.Sprintf("new-%d.jpg", i), fmt.Sprintf("%s: new %d", m.code, i))
		}
	}
	p.keep("the first run")
	return p
}

// keep has each Site pull, and fails unless each then has what was sent to the other.
func (p *pair) keep(after string) {
	p.t.Helper()
	p.b.pulls(p.a)
	p.a.pulls(p.b)
	p.ofB.keeps(p.a, "thule_camera", after)
	p.ofA.keeps(p.b, "kiruna_camera", after)
}

// TestMirrorsKeepAll: two Sites mirror each other while one expires, retracts, purges and deletes its Instruments. The other one
// keeps, by the sender's list, all but what a person purged.
func TestMirrorsKeepAll(t *testing.T) {
	t.Parallel()
	p := newPair(t, 40)
	a, b := p.a, p.b

	b.substorm("archive", "retract", "camera", "n/new-0.jpg", "--reason", "a lamp was on")
	b.pulls(a)
	a.pulls(b)
	b.substorm("archive", "restore", "camera", "n/new-0.jpg", "--reason", "it was the moon")
	p.keep("a retraction and its end")

	b.substorm("archive", "purge", "camera", "n/new-1.jpg", "--reason", "a face", "--yes")
	delete(p.ofB, sha256.Sum256([]byte("thule: new 1")))
	p.keep("a purge")
	if status, _, _ := a.get("/archive/thule_camera/n/new-1.jpg"); status == http.StatusOK {
		t.Error("what a person purged is served by the mirror")
	}

	whole := fmt.Sprintf(pulledSite, b.code, b.port)
	b.Stop() // what is due is looked for at the start, and each hour
	b.write("site.yaml", strings.Replace(whole, "archive: {versions: Keep}", "archive: {versions: Keep, expiry: {retention: 24h, holdRetention: 0s, maxShare: 100}}", 1))
	b.Start()
	eventually(t, "old days expire", func() error {
		if status, _, _ := b.get("/archive/camera/n/old-0.jpg"); status == http.StatusOK {
			return fmt.Errorf("n/old-0.jpg is served")
		}
		return nil
	})
	p.keep("expiry")
	b.write("site.yaml", whole)

	p.ofB.sends(b, "late.jpg", "late")
	p.keep("one that came late")
	forgets(t, a, b)
	p.keep("the Instruments were deleted")
}

// TestMirrorsKeepAllOfAnOriginThatWentBack: one of two Sites that mirror each other is restored from an older backup, and installed again
// under its code. The other one keeps all that was receipted, and what comes then under the same names.
func TestMirrorsKeepAllOfAnOriginThatWentBack(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1)
	a, b := p.a, p.b

	backup := filepath.Join(t.TempDir(), "backup")
	b.Stop()
	b.copies(b.DataDir, backup)
	b.Start()
	p.ofB.sends(b, "late-0.jpg", "thule: after the backup")
	tag := b.indexTag("camera")
	p.keep("the backup")

	b.Stop()
	if err := os.RemoveAll(b.DataDir); err != nil {
		t.Fatal(err)
	}
	b.copies(backup, b.DataDir)
	b.Start()
	p.ofB.sends(b, "late-0.jpg", "thule: other bytes after the restore")
	if b.indexTag("camera") == tag { // the notices have the sequences of those that were lost
		t.Error("the index has the tag that it had before the restore from the backup")
	}
	p.keep("the restore from a backup")

	b.Stop()
	if err := os.RemoveAll(b.DataDir); err != nil {
		t.Fatal(err)
	}
	b.Start()
	b.ready("site/thule", "instrument/camera")
	for i := range 3 {
		p.ofB.sends(b, fmt.Sprintf("new-%d.jpg", i), fmt.Sprintf("thule installed again: new %d", i))
	}
	p.keep("the installation under the same code")
	out := a.run(testenv.Path(t, "kubectl"), "get", "mirrorpartner", "from-thule", "-o", `jsonpath={.status.conditions[?(@.type=="OriginConsistent")]}`)
	if !strings.Contains(out, `"status":"False"`) {
		t.Errorf("of an origin that was installed again OriginConsistent says %s", out)
	}
}

// indexTag is the tag of an Instrument in the mirror index.
func (m *mirrored) indexTag(instrument string) string {
	m.t.Helper()
	_, body, _ := m.get(mirrorindex.RootPath)
	var root mirrorindex.Root
	if err := json.Unmarshal(body, &root); err != nil {
		m.t.Fatal(err)
	}
	for _, line := range root.Instruments {
		if line.Instrument == instrument {
			return line.Tag
		}
	}
	m.t.Fatalf("the index does not list %s: %s", instrument, body)
	return ""
}

// copies copies a data folder whose Site is stopped.
func (m *mirrored) copies(from, to string) {
	m.t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		m.t.Fatalf("%v: %s", err, out)
	}
}
