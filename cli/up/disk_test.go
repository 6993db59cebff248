// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/diskbudget"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const diskSite = `
apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: hub}
spec:
  code: hub
  objectStore: {endpoint: "https://s3.example", bucket: archive, credentialsSecretRef: {name: s3}}
  jetStream:
    servers: ["tls://nats.example:4222"]
    accountKeySecretRef: {name: nats}
  archivist: {partInterval: 1s}
---
apiVersion: substorm.dev/v1alpha1
kind: IngestGateway
metadata: {name: north}
spec: {siteRef: {name: hub}, service: {type: LoadBalancer}, ports: {first: %[1]d, last: %[1]d}}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: north}
spec: {siteRef: {name: hub}}
`

// station is a `substorm up` on a small disk.
type station struct {
	*testenv.Standalone
	t      *testing.T
	port   int
	frames [][]byte
	// sent counts what was sent, also what has no receipt; refused what has none.
	sent, refused int
}

// send sends a frame, and says whether it has a receipt.
func (s *station) send() bool {
	s.t.Helper()
	frame := bytes.Repeat([]byte(fmt.Sprintf("%8d", s.sent)), 250_000)
	s.sent++
	if err := testenv.SendObject(s.port, frame); err != nil {
		s.refused++
		return false
	}
	s.frames = append(s.frames, frame)
	return true
}

// spaceLeft waits for what the condition SpaceLeft says.
func (s *station) spaceLeft(want string, says ...string) {
	s.t.Helper()
	eventually(s.t, "SpaceLeft is "+want, func() error {
		out, err := s.run(testenv.Path(s.t, "kubectl"), "get", "site/hub", "-o", `jsonpath={range .status.conditions[?(@.type=="SpaceLeft")]}{.status}/{.reason}: {.message}{end}`)
		for _, part := range append(says, want+":") {
			if err == nil && !strings.Contains(out, part) {
				err = fmt.Errorf("it is %q, without %q", out, part)
			}
		}
		return err
	})
}

func (s *station) run(program string, args ...string) (string, error) {
	c := exec.Command(program, args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig, "HOME="+s.t.TempDir())
	var says bytes.Buffer
	c.Stderr = &says
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%s %q: %w\n%s", filepath.Base(program), args, err, says.String())
	}
	return string(out), err
}

// served waits until all that has a receipt is served.
func (s *station) served() {
	s.t.Helper()
	for i, frame := range s.frames {
		eventually(s.t, fmt.Sprintf("frame %d is served", i), func() error { return servedAt(s.URL, "camera", frame) })
	}
}

// ledger waits until the ledger says what was sent, as counted here.
func (s *station) ledger() {
	s.t.Helper()
	program := testenv.Program(s.t, "cli")
	eventually(s.t, "the ledger adds up", func() error {
		out, err := s.run(program, "archive", "ledger", "--instrument", "camera", "-o", "json")
		if err != nil {
			return err
		}
		received, refused, agree := 0, 0, true
		for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
			var day struct {
				Agree    bool        `json:"agree"`
				Received wire.Totals `json:"received"`
			}
			if err := d.Decode(&day); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			agree = agree && day.Agree
			received += int(day.Received.Objects)
			refused += int(day.Received.Unfinished[wire.CauseNoSpace])
		}
		if received != len(s.frames) || refused != s.refused || !agree {
			return fmt.Errorf("%d were receipted and %d refused for space: %s", len(s.frames), s.refused, out)
		}
		return nil
	})
}

// TestDiskBudget: a Site whose disk budget is used up receives nothing more, before the disk is full and JetStream stops, also after it was
// killed; what it has receipted is served, and the ledger adds up. With a larger budget it receives again. Its streams have their default sizes,
// which this disk does not have.
func TestDiskBudget(t *testing.T) {
	_, disk := testenv.DiskOf(t, 768<<20)
	manifests := t.TempDir()
	s := &station{t: t, port: testenv.FreePort(t)}
	for name, text := range map[string]string{"site.yaml": diskSite, "camera.yaml": camera} {
		if err := os.WriteFile(filepath.Join(manifests, name), fmt.Appendf(nil, text, s.port), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(disk, "substorm")
	s.Standalone = testenv.StandaloneIn(t, dir, manifests, "--disk-budget", "128Mi")
	s.Start()
	eventually(t, "a frame is receipted", func() error {
		if s.refused = 0; !s.send() {
			s.sent--
			return fmt.Errorf("it is not ready")
		}
		return nil
	})
	s.refused = 0
	s.spaceLeft("True/WithinBudget", "of 128 MiB of the disk budget are used")
	for s.refused < 5 {
		if s.send(); s.sent > 200 {
			t.Fatalf("128 MiB hold %d frames of 2 MB", len(s.frames))
		}
	}
	s.spaceLeft("False/BudgetUsedUp", "nothing is received", "raise --disk-budget")
	if out, err := s.run(testenv.Program(t, "cli"), "status"); !strings.Contains(out, "nothing is received") {
		t.Errorf("substorm status: %v\n%s", err, out)
	}
	text, err := get(s.Metrics)
	if err != nil || !strings.Contains(string(text), `substorm_disk_receipts_refused{pod="up"} 1`) {
		t.Errorf("%v in\n%s", err, text)
	}
	s.ledger()
	s.served()
	usage, err := diskbudget.Measure(t.Context(), dir)
	if err != nil || usage.Total() > 160<<20 {
		t.Errorf("the data folder has %d bytes with a budget of 128 MiB: %v", usage.Total(), err)
	}

	s.Kill()
	s.Start()
	s.spaceLeft("False/BudgetUsedUp")
	if s.send() {
		t.Error("after a restart there is a receipt")
	}
	s.served()
	s.Stop()

	s.Standalone = testenv.StandaloneIn(t, dir, manifests, "--disk-budget", "512Mi")
	s.Start()
	eventually(t, "a frame is receipted", func() error {
		if !s.send() {
			return fmt.Errorf("it is refused")
		}
		return nil
	})
	s.spaceLeft("True/WithinBudget", "of 512 MiB")
	s.served()
}
