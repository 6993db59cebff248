// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/cli/archive"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const pulledSite = `
apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: %[1]s}
spec:
  code: %[1]s
  objectStore: {endpoint: "https://s3.example", bucket: archive, credentialsSecretRef: {name: s3}}
  jetStream: {servers: ["tls://nats.example:4222"], accountKeySecretRef: {name: nats}}
  archivist: {partInterval: 1s}
---
apiVersion: substorm.dev/v1alpha1
kind: IngestGateway
metadata: {name: %[1]s}
spec: {siteRef: {name: %[1]s}, replicas: 1, service: {type: LoadBalancer}, ports: {first: %[2]d, last: %[2]d}}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: %[1]s}
spec: {siteRef: {name: %[1]s}, replicas: 1}
---
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: camera}
spec:
  siteRef: {name: %[1]s}
  type: AllSkyCamera
  listeners: [{name: frames, protocol: HTTP, port: %[2]d}]
  access: {live: Public, archive: Public}
  archive: {versions: Keep}
  rights: {license: CC-BY-4.0, credit: "cameras of %[1]s"}
---
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: secret}
spec:
  siteRef: {name: %[1]s}
  type: AllSkyCamera
  listeners: [{name: frames, protocol: HTTP, port: %[2]d}]
`

const pullPartner = `
apiVersion: substorm.dev/v1alpha1
kind: MirrorPartner
metadata: {name: from-%[2]s}
spec:
  siteRef: {name: %[1]s}
  direction: Pull
  protocol: HTTPS
  https: {url: %[3]q, source: Substorm, origin: %[2]s}
  schedule: {cron: "0 0 1 1 *"}
  selection: {versions: All}
`

// mirrored is a Site that pulls from another one.
type mirrored struct {
	*testenv.Standalone
	t    *testing.T
	code string
	port int
	dir  string
}

func newMirrored(t *testing.T, code string) *mirrored {
	m := &mirrored{t: t, code: code, port: testenv.FreePort(t), dir: t.TempDir()}
	m.write("site.yaml", fmt.Sprintf(pulledSite, code, m.port))
	m.Standalone = testenv.StartStandalone(t, m.dir)
	return m
}

func (m *mirrored) write(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *mirrored) run(program string, args ...string) string {
	m.t.Helper()
	c := exec.Command(program, args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+m.Kubeconfig, "HOME="+m.t.TempDir())
	var said strings.Builder
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		m.t.Fatalf("%s: %s %q: %v\n%s%s", m.code, filepath.Base(program), args, err, out, said.String())
	}
	return string(out)
}

func (m *mirrored) substorm(args ...string) string {
	return m.run(testenv.Program(m.t, "cli"), args...)
}

// ready waits until what was declared is there and ready.
func (m *mirrored) ready(objects ...string) {
	m.t.Helper()
	kubectl := testenv.Path(m.t, "kubectl")
	m.run(kubectl, append([]string{"wait", "--for=create", "--timeout=120s"}, objects...)...)
	m.run(kubectl, append([]string{"wait", "--for=condition=Ready", "--timeout=120s"}, objects...)...)
}

// send puts an object of an instrument.
func (m *mirrored) send(instrument, name string, data []byte) {
	m.t.Helper()
	eventually(m.t, "an object is receipted", func() error {
		q, err := http.NewRequest(http.MethodPut, fmt.Sprintf("http://127.0.0.1:%d/in/%s/%s", m.port, instrument, name), bytes.NewReader(data))
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusCreated && answer.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(answer.Body)
			return fmt.Errorf("%s: %s", answer.Status, text)
		}
		return nil
	})
}

func (m *mirrored) get(path string) (int, []byte, http.Header) {
	m.t.Helper()
	answer, err := http.Get(m.URL + path)
	if err != nil {
		m.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		m.t.Fatal(err)
	}
	return answer.StatusCode, body, answer.Header
}

// pulls makes a run of the partner that pulls from another Site.
func (m *mirrored) pulls(from *mirrored, flags ...string) string {
	m.t.Helper()
	return m.substorm(append([]string{"mirror", "run", "from-" + from.code, "--wait", "2m"}, flags...)...)
}

// has compares what is published at a path with what is expected there.
func (m *mirrored) has(path string, want []byte) {
	m.t.Helper()
	eventually(m.t, m.code+" has "+path, func() error {
		status, body, _ := m.get(path)
		if status != http.StatusOK || !bytes.Equal(body, want) {
			return fmt.Errorf("it answers %d with %d bytes", status, len(body))
		}
		return nil
	})
}

func (m *mirrored) offers() (names []string) {
	m.t.Helper()
	_, body, _ := m.get(mirrorindex.RootPath)
	var root mirrorindex.Root
	if err := json.Unmarshal(body, &root); err != nil {
		m.t.Fatalf("the mirror index: %v: %s", err, body)
	}
	for _, line := range root.Instruments {
		names = append(names, line.Instrument)
	}
	return names
}

// records are those that the manifests list of an instrument.
func (m *mirrored) records(instrument string) (all []wire.Record) {
	m.t.Helper()
	for lines := json.NewDecoder(strings.NewReader(m.substorm("archive", "ls", "--instrument", instrument, "-o", "json"))); lines.More(); {
		var r wire.Record
		if err := lines.Decode(&r); err != nil {
			m.t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// TestPull: two Sites mirror each other. Each has what the other received, once, under the other's name and with its rights; neither is
// offered what it had given; what one retracts, the other retracts.
func TestPull(t *testing.T) {
	t.Parallel()
	a, b := newMirrored(t, "kiruna"), newMirrored(t, "thule")
	for _, pair := range [][2]*mirrored{{a, b}, {b, a}} {
		pair[0].write("partner.yaml", fmt.Sprintf(pullPartner, pair[0].code, pair[1].code, pair[1].URL))
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 20<<16) // 20 MiB
	sent := map[string][]byte{"first.jpg": []byte("first"), "a b/ö.jpg": []byte("name"), "large.bin": large}
	for _, m := range []*mirrored{a, b} {
		m.ready("site/"+m.code, "instrument/camera", "mirrorpartner/from-"+map[*mirrored]string{a: b.code, b: a.code}[m])
		for name, data := range sent {
			m.send("camera", strings.ReplaceAll(name, " ", "%20"), append([]byte(m.code), data...))
		}
		m.send("secret", "secret.jpg", []byte("secret"))
	}
	for i := range 3 { // two of them are superseded before they are pulled
		a.send("camera", "corrected.jpg", fmt.Appendf(nil, "version %d", i))
		a.send("camera", "corrected.bin", bytes.Repeat([]byte{byte(i)}, 9<<20))
	}
	for range 2 { // the second time nothing is new, and nothing comes back
		a.pulls(b)
		b.pulls(a)
	}
	for _, pair := range [][2]*mirrored{{a, b}, {b, a}} {
		here, there := pair[0], pair[1]
		for name, data := range sent {
			here.has("/archive/"+there.code+"_camera/n/"+strings.ReplaceAll(name, " ", "%20"), append([]byte(there.code), data...))
		}
		if _, _, header := here.get("/archive/" + there.code + "_camera/n/first.jpg"); !strings.Contains(strings.Join(header.Values("Link"), " "), "CC-BY-4.0") {
			t.Errorf("%s serves what is %s's without its license: %v", here.code, there.code, header.Values("Link"))
		}
		if got := strings.Join(here.offers(), " "); got != "camera" {
			t.Errorf("%s offers %q", here.code, got)
		}
		if status, _, _ := here.get("/archive/" + there.code + "_secret/n/secret.jpg"); status == http.StatusOK {
			t.Errorf("%s has what nobody may read at %s", here.code, there.code)
		}
		eventually(t, here.code+" lists what came", func() error {
			records := here.records(there.code + "_camera")
			if n := len(there.records("camera")); len(records) != n || n < len(sent) {
				return fmt.Errorf("%d objects are listed, %d there", len(records), n)
			}
			for _, r := range records {
				if r.Origin == nil || r.Origin.Site != there.code || r.Origin.ID == "" {
					return fmt.Errorf("%s comes from %+v", r.Path, r.Origin)
				}
			}
			return nil
		})
	}
	same(t, a, b)
	same(t, b, a)
	b.has("/archive/kiruna_camera/n/corrected.jpg", []byte("version 2"))

	b.send("camera", "late.jpg", []byte("late"))
	b.send("camera", "first.jpg", []byte("thulecorrected"))
	a.pulls(b)
	a.has("/archive/thule_camera/n/late.jpg", []byte("late"))
	a.has("/archive/thule_camera/n/first.jpg", []byte("thulecorrected"))
	if got := a.substorm("archive", "cat", "--instrument", "thule_camera", "n/late.jpg"); got != "late" {
		t.Errorf("substorm archive cat gives %q", got)
	}
	same(t, a, b)
	b.substorm("archive", "retract", "camera", "n/first.jpg", "--reason", "a person is in the picture")
	a.pulls(b)
	eventually(t, "what was retracted there is retracted here", func() error {
		status, body, _ := a.get("/archive/thule_camera/n/first.jpg")
		if status != http.StatusGone || !bytes.Contains(body, []byte("a person is in the picture")) {
			return fmt.Errorf("it answers %d: %s", status, body)
		}
		return nil
	})
	same(t, a, b)

	forgets(t, a, b)
	b.write("site.yaml", strings.Replace(fmt.Sprintf(pulledSite, b.code, b.port), "access: {live: Public, archive: Public}", "access: {live: Restricted, archive: Restricted}", 1))
	eventually(t, "what few may read there, few may read here", func() error {
		a.pulls(b)
		if status, _, _ := a.get("/archive/thule_camera/n/late.jpg"); status == http.StatusOK {
			return errors.New("anybody may read it")
		}
		return nil
	})
}

// forgets has a Site forget its Instruments, as after it was installed again: the one that pulls hides nothing, and says so.
func forgets(t *testing.T, here, there *mirrored) {
	t.Helper()
	whole := fmt.Sprintf(pulledSite, there.code, there.port)
	head, _, _ := strings.Cut(whole, "---\napiVersion: substorm.dev/v1alpha1\nkind: Instrument\n")
	there.write("site.yaml", head)
	eventually(t, there.code+" forgets its Instruments", func() error {
		if names := there.offers(); len(names) > 0 {
			return fmt.Errorf("it offers %q", names)
		}
		return nil
	})
	here.substorm("mirror", "run", "from-"+there.code)
	here.run(testenv.Path(t, "kubectl"), "wait", `--for=jsonpath={.status.conditions[?(@.type=="Synced")].reason}=SafetyStop`, "--timeout=120s", "mirrorpartner/from-"+there.code)
	here.has("/archive/"+there.code+"_camera/n/late.jpg", []byte("late"))
	there.write("site.yaml", whole)
	eventually(t, there.code+" offers its camera again", func() error {
		if got := strings.Join(there.offers(), " "); got != "camera" {
			return fmt.Errorf("it offers %q", got)
		}
		return nil
	})
	here.pulls(there)
}

// same compares what is listed of a Site's camera with what the Site itself lists: by digest, receipt, state and ID.
func same(t *testing.T, here, there *mirrored) {
	t.Helper()
	eventually(t, here.code+" lists what "+there.code+" does", func() error {
		want, got := map[string]string{}, map[string]string{}
		for _, r := range there.records("camera") {
			want[r.ID] = fmt.Sprint(r.Digest, r.ReceivedAt.UTC(), r.State)
		}
		for _, r := range here.records(there.code + "_camera") {
			got[r.Origin.ID] = fmt.Sprint(r.Digest, r.ReceivedAt.UTC(), r.State)
		}
		if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
			return fmt.Errorf("of %d objects (-there +here):\n%s", len(want), diff)
		}
		return nil
	})
}

// TestPullInterrupted: the link breaks and the process of the Site is killed, ten times while it pulls; what comes of it is what the
// other Site has, each object once, and nothing is received that is not announced.
func TestPullInterrupted(t *testing.T) {
	t.Parallel()
	a, b := newMirrored(t, "kiruna"), newMirrored(t, "thule")
	way := testenv.StartRelay(t, strings.TrimPrefix(b.URL, "http://"))
	a.write("partner.yaml", fmt.Sprintf(pullPartner, "kiruna", "thule", "http://"+way.Address()))
	a.ready("site/kiruna", "mirrorpartner/from-thule")
	b.ready("site/thule", "instrument/camera")
	for i := range 40 {
		data := bytes.Repeat([]byte{byte(i)}, 1<<20+i)
		if i == 7 {
			data = bytes.Repeat([]byte("large"), 8<<20)
		}
		b.send("camera", fmt.Sprintf("%02d.bin", i), data)
	}
	for i := range 10 {
		a.substorm("mirror", "run", "from-thule")
		want := fmt.Sprintf("object %d of the run", i)
		eventually(t, want, func() error { // it has begun, or is done
			if n := len(a.records("thule_camera")); n < min(40, 3*i) {
				return fmt.Errorf("%d objects are listed", n)
			}
			return nil
		})
		way.Cut()
		if i%2 == 0 {
			a.Kill()
			way.Mend()
			a.Start()
			a.ready("site/kiruna", "mirrorpartner/from-thule")
			continue
		}
		way.Mend()
	}
	a.pulls(b)
	same(t, a, b)
	for _, r := range b.records("camera") {
		status, body, _ := a.get("/archive/thule_camera/" + r.Published())
		if status != http.StatusOK || sha256.Sum256(body) != r.Digest {
			t.Errorf("%s: it answers %d with %d bytes of other content", r.Published(), status, len(body))
		}
	}
	eventually(t, "the ledger's columns agree", func() error {
		var received, announced wire.Totals
		for days := json.NewDecoder(strings.NewReader(a.substorm("archive", "ledger", "--instrument", "thule_camera", "-o", "json"))); days.More(); {
			var l archive.Ledger
			if err := days.Decode(&l); err != nil {
				return err
			}
			received, announced = received.Plus(l.Received), announced.Plus(l.Announced)
		}
		if received.Objects != 40 || announced.Objects != received.Objects || announced.Digest != received.Digest {
			return fmt.Errorf("received %+v, announced %+v", received, announced)
		}
		return nil
	})
}
