// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const treePartners = `
apiVersion: substorm.dev/v1alpha1
kind: MirrorPartner
metadata: {name: old-archive}
spec:
  siteRef: {name: hub}
  direction: Pull
  protocol: HTTPS
  https: {url: "%[1]s/aurora", source: WebArchive}
  schedule: {cron: "0 0 1 1 *"}
  paths: [{pattern: "kev/**/*.jpg", instrumentRef: {name: camera}}]
---
apiVersion: substorm.dev/v1alpha1
kind: MirrorPartner
metadata: {name: institute}
spec:
  siteRef: {name: hub}
  direction: Pull
  protocol: Rsync
  rsync: {transport: Daemon, daemon: {address: %[2]q, module: data, path: aurora}}
  schedule: {cron: "0 0 1 1 *"}
  paths: [{pattern: "mag/**", instrumentRef: {name: camera}}]
`

// imported is an Instrument that is declared for what is pulled.
const imported = `
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: %s}
spec:
  siteRef: {name: hub}
  type: AllSkyCamera
  access: {live: Public, archive: Public}
`

// TestPullFolders: what a web server and an rsync daemon have in folders becomes objects of an Instrument, each once; what no pattern
// fits is counted and stays where it is, and what another Instrument's pattern fits by now comes to that one.
func TestPullFolders(t *testing.T) {
	t.Parallel()
	address, served := testenv.RsyncDaemon(t, "")
	dir := t.TempDir()
	write := func(dir, name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	web := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer web.Close()
	sent := map[string]string{"kev/2015/a b.jpg": "first", "kev/2015/ö.jpg": strings.Repeat("second ", 3<<20), "mag/2015-03-17.txt": "h d z", "mag/deep/x.txt": "x y z"}
	for name, text := range sent {
		if strings.HasPrefix(name, "kev") {
			write(dir, "aurora/"+name, text)
		} else {
			write(served, "aurora/"+name, text)
		}
	}
	write(dir, "aurora/README.html", "<p>about")

	m := &mirrored{t: t, code: "hub", port: testenv.FreePorts(t, 2), dir: t.TempDir()}
	m.write("site.yaml", strings.Replace(fmt.Sprintf(site, m.port), fmt.Sprintf("last: %d}", m.port), fmt.Sprintf("last: %d}", m.port+1), 1))
	m.write("camera.yaml", fmt.Sprintf(imported, "camera"))
	m.write("second.yaml", fmt.Sprintf(imported, "second"))
	m.write("partners.yaml", fmt.Sprintf(treePartners, web.URL, address))
	m.Standalone = testenv.StartStandalone(t, m.dir)
	m.ready("site/hub", "instrument/camera", "instrument/second", "mirrorpartner/old-archive", "mirrorpartner/institute")
	pull := func() {
		t.Helper()
		for _, partner := range []string{"old-archive", "institute"} {
			m.substorm("mirror", "run", partner, "--wait", "2m")
		}
	}
	pull()
	pull()
	var records []wire.Record
	eventually(t, "what came is listed, once", func() error {
		if records = m.records("camera"); len(records) != len(sent) {
			return fmt.Errorf("%d objects are listed, %d were there", len(records), len(sent))
		}
		return nil
	})
	for _, r := range records {
		if text, is := sent[r.Name]; !is || r.Size != int64(len(text)) || r.Origin != nil || r.State != wire.StateCurrent {
			t.Errorf("%q is listed with %d bytes, from %+v", r.Name, r.Size, r.Origin)
		}
		m.has("/archive/camera/"+strings.ReplaceAll(r.Published(), " ", "%20"), []byte(sent[r.Name]))
	}
	if out := m.run(testenv.Path(t, "kubectl"), "get", "mirrorpartner", "old-archive", "-o", "jsonpath={.status.runs[*].quarantinedCount}"); !strings.Contains(out, "1") {
		t.Errorf("of the file that no pattern fits the status says %q", out)
	}
	write(served, "aurora/mag/2015-03-18.txt", "later")
	pull()
	sent["mag/2015-03-18.txt"] = "later"
	eventually(t, "what came later is listed", func() error {
		if n := len(m.records("camera")); n != len(sent) {
			return fmt.Errorf("%d of %d are listed", n, len(sent))
		}
		return nil
	})

	m.write("partners.yaml", strings.ReplaceAll(fmt.Sprintf(treePartners, web.URL, address), "instrumentRef: {name: camera}", "instrumentRef: {name: second}"))
	eventually(t, "what belongs to another Instrument by now is listed there", func() error {
		pull()
		if n := len(m.records("second")); n != len(sent) {
			return fmt.Errorf("%d of %d are listed", n, len(sent))
		}
		return nil
	})
}
