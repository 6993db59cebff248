// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

const (
	// polar is another Site, in a namespace of that name.
	polar           = "polar"
	mirrorSitesPort = 30134
	// polarPort is the only one of its gateways: ports of nodes are each Site's own.
	polarPort = 30301
)

// mirroredSite is one of two Sites that mirror each other.
type mirroredSite struct {
	*lab
	namespace, code, camera string
	port                    int
}

const mirroredCamera = `apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: %[1]s}
spec:
  siteRef: {name: demo}
  type: AllSkyCamera
  listeners: [{name: tcp, protocol: TCP, port: %[2]d}]
  access: {live: Public, archive: Public}
---
apiVersion: substorm.dev/v1alpha1
kind: MirrorPartner
metadata: {name: %[3]s}
spec:
  siteRef: {name: demo}
  direction: Pull
  protocol: HTTPS
  https: {url: "http://%[4]s", source: Substorm, origin: %[3]s}
  schedule: {cron: "0 0 1 1 *"}
`

// TestMirrorSites: two Sites, each in a namespace with servers of its own, pull from each other by Jobs. Each lists what the other's
// camera sent, once, with where it comes from; the ledger counts it; and nothing comes back.
func TestMirrorSites(t *testing.T) {
	l := theLab
	l.installPolar(t)
	here := &mirroredSite{lab: l, namespace: namespace, code: "demo", camera: "sites-camera", port: mirrorSitesPort}
	there := &mirroredSite{lab: l, namespace: polar, code: polar, camera: "sites-camera", port: polarPort}
	for of, other := range map[*mirroredSite]*mirroredSite{here: there, there: here} {
		address := of.run(t, l.kubectlBin, "get", "service", "-n", other.namespace, "-l", "app.kubernetes.io/name=feed-server", "-o",
			`jsonpath={.items[0].metadata.name}.{.items[0].metadata.namespace}.svc:{.items[0].spec.ports[0].port}`)
		of.apply(t, fmt.Sprintf(mirroredCamera, of.camera, of.port, other.code, address))
		of.run(t, l.kubectlBin, "wait", "--for=condition=Ready", "--timeout="+patienceText, "instrument/"+of.camera, "mirrorpartner/"+other.code)
	}
	sent := map[*mirroredSite]int{here: 6, there: 4}
	for of, n := range sent {
		of.run(t, l.substorm, "send", "--quiet", "--to", join(l.nodeAddresses(t), of.port), writeObjects(t, n, 32<<10))
		eventually(t, func() error { // a receipt may come before an object is announced, and a run takes what is
			if is := len(of.records(t, of.camera)); is != n {
				return fmt.Errorf("%s lists %d of %d objects", of.code, is, n)
			}
			return nil
		})
	}
	for range 2 {
		here.pull(t, there)
		there.pull(t, here)
	}
	for of, other := range map[*mirroredSite]*mirroredSite{here: there, there: here} {
		of.has(t, other, sent[other])
		if names := of.instruments(t); slices.ContainsFunc(names, func(name string) bool { return wire.IsGuest(name) && !strings.HasPrefix(name, other.code+"_") }) {
			t.Errorf("%s has %q: what it had given came back", of.code, names)
		}
	}
}

// installPolar installs the other Site as a user would.
func (l *lab) installPolar(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		_ = l.show(l.kubectlBin, "delete", "mirrorpartner,instrument", "--all", "-n", polar, "--timeout="+patienceText)
		_ = l.show(l.kubectlBin, "delete", "mirrorpartner/"+polar, "instrument/sites-camera", "-n", namespace, "--timeout="+patienceText)
		for _, release := range []string{"demo", "substorm", "substorm-quickstart"} {
			_ = l.show(l.helmBin, "uninstall", release, "--namespace", polar, "--wait", "--timeout", patienceText)
		}
		_ = l.show(l.kubectlBin, "delete", "namespace", polar, "--wait=false")
	})
	for _, release := range [][]string{
		{"substorm-quickstart", "charts/substorm-quickstart", "--create-namespace", "--set", "nats.domain=" + polar},
		{"substorm", "charts/substorm", "--set", "roles.create=false"}, // one release in a cluster has the roles
		{"demo", "charts/substorm-site", "--set", "site.spec.code=" + polar,
			"--set", fmt.Sprintf("ingestGateway.spec.ports.first=%[1]d,ingestGateway.spec.ports.last=%[1]d", polarPort)},
	} {
		argv := append([]string{l.helmBin, "upgrade", "--install", release[0], release[1], "--namespace", polar, "--set", "image.tag=dev", "--wait", "--timeout", patienceText}, release[2:]...)
		if err := l.show(argv...); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs a command in the Site's namespace.
func (s *mirroredSite) run(t testing.TB, argv ...string) string {
	t.Helper()
	if !slices.Contains(argv, "-n") && argv[1] != "send" {
		argv = append(argv, "-n", s.namespace)
	}
	out, err := s.output(argv...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s *mirroredSite) apply(t testing.TB, manifest string) {
	t.Helper()
	if _, err := s.outputContext(t.Context(), []byte(manifest), s.kubectlBin, "-n", s.namespace, "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// pull makes a run of the partner that pulls from the other Site.
func (s *mirroredSite) pull(t testing.TB, other *mirroredSite) {
	t.Helper()
	if out, err := s.output(s.substorm, "mirror", "run", other.code, "-n", s.namespace, "--wait", patienceText); err != nil {
		logs, _ := s.output(s.kubectlBin, "logs", "-n", s.namespace, "-l", "app.kubernetes.io/name=mirror-jobs", "--tail=50")
		t.Fatalf("%v\n%s\n%s", err, out, logs)
	}
}

// records are those that the manifests of the Site list of an instrument.
func (s *mirroredSite) records(t testing.TB, instrument string) (all []wire.Record) {
	t.Helper()
	out := s.run(t, s.substorm, "archive", "ls", "--instrument", instrument, "-o", "json")
	for lines := json.NewDecoder(strings.NewReader(out)); lines.More(); {
		var r wire.Record
		if err := lines.Decode(&r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// instruments are those that the Site's archive has something of.
func (s *mirroredSite) instruments(t testing.TB) (names []string) {
	t.Helper()
	out := s.run(t, s.substorm, "archive", "ls", "-o", "json")
	for lines := json.NewDecoder(strings.NewReader(out)); lines.More(); {
		var n wire.Notice
		if err := lines.Decode(&n); err != nil {
			t.Fatal(err)
		}
		names = append(names, n.Instrument)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// has compares what the Site lists of the other's camera with what the other lists, and with the ledger.
func (s *mirroredSite) has(t testing.TB, other *mirroredSite, sent int) {
	t.Helper()
	guest := wire.GuestName(other.code, other.camera)
	eventually(t, func() error {
		want, got := map[string]string{}, map[string]string{}
		for _, r := range other.records(t, other.camera) {
			want[r.ID] = fmt.Sprint(r.Digest, r.ReceivedAt.UTC(), r.State)
		}
		for _, r := range s.records(t, guest) {
			if r.Origin != nil && r.Origin.Site == other.code {
				got[r.Origin.ID] = fmt.Sprint(r.Digest, r.ReceivedAt.UTC(), r.State)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || len(want) != sent {
			return fmt.Errorf("%s, of %d objects (-there +here):\n%s", s.code, len(want), diff)
		}
		return nil
	})
	eventually(t, func() error {
		out := s.run(t, s.substorm, "archive", "ledger", "--instrument", guest, "-o", "json")
		return allAgree(out)
	})
}

// allAgree says which days of a ledger, a line of JSON each, have columns that do not agree.
func allAgree(ledger string) error {
	lines := json.NewDecoder(strings.NewReader(ledger))
	for days := 0; ; days++ {
		var day struct {
			Day         string   `json:"day"`
			Agree       bool     `json:"agree"`
			Differences []string `json:"differences"`
		}
		switch err := lines.Decode(&day); {
		case errors.Is(err, io.EOF) && days == 0:
			return errors.New("the ledger has no day")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("the ledger is no JSON: %w: %s", err, ledger)
		case !day.Agree:
			return fmt.Errorf("the ledger's columns of %s do not agree: %q", day.Day, day.Differences)
		}
	}
}
