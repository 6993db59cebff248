// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/wire"
)

const (
	mirrorCamera = "mirror-camera"
	mirrorPort   = 30132
)

// TestMirror: a partner with a real rsync daemon is given what an Instrument sent, by a Job; a run that finds nothing new moves
// nothing; the ledger, the status and the partner tell one story.
func TestMirror(t *testing.T) {
	l := theLab
	l.apply(t, instrumentTCP(mirrorCamera, mirrorPort))
	l.kubectl(t, "label", "instrument", mirrorCamera, "mirrored=yes", "--overwrite")
	partner, err := os.ReadFile(filepath.Join(l.root, "hack", "demo", "partner.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	l.apply(t, strings.Replace(string(partner), "selector: {}", `selector: {matchLabels: {mirrored: "yes"}}`, 1))
	l.kubectl(t, "wait", "pod/rsync-partner", "--for=condition=Ready", "--timeout="+patienceText)
	l.waitReady(t, "instrument/"+mirrorCamera, "mirrorpartner/university")
	sent := l.sendSome(t, mirrorCamera, mirrorPort, 5)

	run := func() {
		t.Helper()
		if out, err := l.output(l.substorm, "mirror", "run", "university", "-n", namespace, "--wait", patienceText); err != nil {
			logs, _ := l.tryKubectl("logs", "-l", "app.kubernetes.io/name=mirror-jobs", "--tail=50")
			t.Fatalf("%v\n%s\n%s", err, out, logs)
		}
	}
	run()
	if files := l.partnerHas(t); len(files) != len(sent) {
		t.Errorf("the partner has %q, of %d objects", files, len(sent))
	}
	eventually(t, func() error {
		day := l.ledger(t, mirrorCamera)
		for _, w := range day.Writers {
			if w.Writer == "university" && w.Mirrored != nil && w.Mirrored.Objects == uint64(len(sent)) && w.Mirrored.Digest == day.Announced.Digest {
				return nil
			}
		}
		return fmt.Errorf("the ledger: %+v", day)
	})

	// A file is removed at the partner: a run that only compares finds that, and one with force brings it again.
	file := l.partnerHas(t)[0]
	l.kubectl(t, "exec", "rsync-partner", "--", "rsync", "-r", "--delete", "--include="+path.Base(file), "--exclude=*", "/etc/rsyncd/", "/data/"+path.Dir(file)+"/")
	if out, err := l.output(l.substorm, "mirror", "run", "university", "-n", namespace, "--verify-only", "--wait", patienceText); err == nil {
		t.Errorf("nothing is missing: %s", out)
	}
	if out, err := l.output(l.substorm, "mirror", "run", "university", "-n", namespace, "--force", "--wait", patienceText); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if files := l.partnerHas(t); !slices.Contains(files, file) {
		t.Errorf("the partner has %q, and not %s", files, file)
	}
	eventually(t, func() error {
		out := l.kubectl(t, "get", "mirrorpartner", "university", "-o", `jsonpath={.status.conditions[?(@.type=="Reachable")].status} {.status.runs[0].result}`)
		if out != "True "+wire.MirrorSucceeded {
			return fmt.Errorf("the status says %q", out)
		}
		return nil
	})
	l.kubectl(t, "delete", "mirrorpartner/university", "pod/rsync-partner", "--wait=false")
}

// partnerHas lists the files that the partner has.
func (l *lab) partnerHas(t testing.TB) (files []string) {
	t.Helper()
	for line := range strings.Lines(l.kubectl(t, "exec", "rsync-partner", "--", "rsync", "--list-only", "-r", "/data/")) {
		if fields := strings.Fields(line); len(fields) == 5 && strings.HasPrefix(fields[0], "-") {
			files = append(files, fields[4])
		}
	}
	return files
}
