// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
)

// twoConsumers has a FeedConsumer that can connect, and one that cannot.
const twoConsumers = `
apiVersion: substorm.dev/v1alpha1
kind: Feed
metadata: {name: all}
spec: {siteRef: {name: hub}}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedConsumer
metadata: {name: browser}
spec: {feedRef: {name: all}, delivery: {type: ServerSentEvents}}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedConsumer
metadata: {name: analysis}
spec: {feedRef: {name: all}, delivery: {type: NATS}}
`

// TestUnapplied: the start says what is not accepted and how to follow; files that change and are not applied, as a whole or in part, are a condition
// of the Site with file and line, and what is right of them is applied; a reader whose token leaves the file is not let in any more. It receives at
// the address of --listen-ingest alone, and metrics are not served under another name.
func TestUnapplied(t *testing.T) {
	port, dir := testenv.FreePort(t), t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	instrument := fmt.Sprintf(camera, port)
	stray := strings.NewReplacer("name: camera", "name: stray", "name: hub", "name: tyr").Replace(instrument)
	outside := strings.NewReplacer("name: camera", "name: outside", fmt.Sprint(port), "29999").Replace(instrument)
	tokens := func(readers string) string {
		return "apiVersion: v1\nkind: Secret\nmetadata: {name: readers, labels: {substorm.dev/tokens: \"true\"}}\nstringData:\n" + readers
	}
	const uni, ops = "  uni: uni-token-0123456789abcdef0123456789\n", "  ops: ops-token-0123456789abcdef0123456789\n"
	write("site.yaml", strings.Replace(fmt.Sprintf(site, port), "spec:\n  code: hub", "spec:\n  code: hub\n  readersSecretRef: {name: readers}", 1))
	write("readers.yaml", tokens(uni+ops))
	write("camera.yaml", instrument)
	server := "apiVersion: substorm.dev/v1alpha1\nkind: FeedServer\nmetadata: {name: second}\nspec: {siteRef: {name: tyr}}\n"
	write("strays.yaml", stray+"---\n"+outside+"---\n"+server)
	write("feed.yaml", twoConsumers)
	s := testenv.StartStandalone(t, dir, "--listen-ingest", "127.0.0.1")
	says := func(wants ...string) {
		t.Helper()
		for _, want := range wants {
			eventually(t, "it says "+want, func() error {
				if log := s.Log(); !strings.Contains(log, want) {
					return fmt.Errorf("it says:\n%s", log)
				}
				return nil
			})
		}
	}
	says("  receives     127.0.0.1:"+fmt.Sprint(port)+" of camera\n",
		"  follow       curl -N '"+s.URL+"/feeds/all/events?consumer=browser'\n",
		`  not accepted Instrument "stray": Site "tyr" does not exist`, `  not accepted Instrument "outside": `, "29999",
		`  not accepted FeedServer "second": Site "tyr" does not exist`,
		`  not accepted FeedConsumer "analysis": spec.delivery: substorm up opens no port of its NATS server`)
	if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.2:%d", port)); err == nil {
		_ = conn.Close()
		t.Error("it receives at another address than that of --listen-ingest")
	}
	if code := status(t, s.Metrics, func(r *http.Request) { r.Host = "attacker.example" }); code != http.StatusMisdirectedRequest {
		t.Errorf("metrics under another name are answered with %d", code)
	}

	// One document of a file is refused, the other is applied.
	program := testenv.Program(t, "cli")
	manifestsApplied := func(want ...string) {
		t.Helper()
		eventually(t, fmt.Sprintf("substorm status says %q", want), func() error {
			out, _ := (&station{Standalone: s, t: t}).run(program, "status", "-o", "json")
			if len(want) == 0 && strings.Contains(out, "ManifestsApplied") {
				return fmt.Errorf("it says:\n%s", out)
			}
			for _, part := range want {
				if !strings.Contains(out, part) {
					return fmt.Errorf("it says:\n%s", out)
				}
			}
			return nil
		})
	}
	second := strings.NewReplacer("name: camera", "name: second", fmt.Sprint(port), "29998").Replace(instrument)
	write("camera.yaml", strings.Replace(instrument, "type: AllSky", "tpye: AllSky", 1)+"---\n"+second)
	before, _, _ := strings.Cut(instrument, "type: AllSky")
	line := fmt.Sprint("camera.yaml:", 1+strings.Count(before, "\n"))
	manifestsApplied("ManifestsApplied", line, "spec.tpye", "some of what the files declare")
	says("all is applied but:\n  not applied  "+filepath.Join(dir, line)+": ", `: Instrument "second"`, `not accepted Instrument "second"`)
	if err := testenv.SendObject(port, []byte("a frame")); err != nil {
		t.Errorf("what was applied before does not receive: %v", err)
	}
	// A file is no manifest: nothing is applied.
	write("camera.yaml", instrument+"---\nkind: [\n")
	manifestsApplied("ManifestsApplied", "camera.yaml:1", "nothing of the change is applied")
	write("camera.yaml", instrument)
	manifestsApplied()
	says("The files are applied.\n")

	reads := func(token string) int {
		return status(t, s.URL+"/archive/", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) })
	}
	token := func(line string) string { return strings.Fields(line)[1] }
	lets := func(line string, want int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%s is answered with %d", strings.TrimSpace(line), want), func() error {
			if code := reads(token(line)); code != want {
				return fmt.Errorf("it is answered with %d", code)
			}
			return nil
		})
	}
	lets(ops, http.StatusOK)
	write("readers.yaml", tokens(uni))
	lets(ops, http.StatusUnauthorized)
	lets(uni, http.StatusOK)
}

// TestRestartWithMistake: a Site that ran receives after a restart whatever is wrong with its files, and says what is not applied.
func TestRestartWithMistake(t *testing.T) {
	port, dir := testenv.FreePort(t), t.TempDir()
	good := fmt.Sprintf(site+"---\n"+camera, port)
	file := filepath.Join(dir, "site.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(good)
	s := testenv.StartStandalone(t, dir)
	for name, c := range map[string]struct{ text, says string }{
		"no YAML":       {good + "---\nkind: [\n", "nothing of the change is applied"},
		"no Site":       {"", "no Site is declared in"},
		"unknown field": {strings.Replace(good, "type: AllSky", "tpye: AllSky", 1), "all is applied but"},
	} {
		s.Stop()
		write(c.text)
		s.Start()
		eventually(t, name+": it receives", func() error { return testenv.SendObject(port, []byte("a frame: "+name)) })
		if log := s.Log(); !strings.Contains(log, c.says) {
			t.Errorf("%s: it does not say %q:\n%s", name, c.says, log)
		}
		eventually(t, name+": the Site says so", func() error {
			out, _ := (&station{Standalone: s, t: t}).run(s.Program(), "status", "-o", "json")
			if !strings.Contains(out, "ManifestsApplied") {
				return fmt.Errorf("it says:\n%s", out)
			}
			return nil
		})
	}
	s.Stop()
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	s.Start()
	eventually(t, "without the files it receives", func() error { return testenv.SendObject(port, []byte("a frame: no files")) })
}

// status is the code of an answer.
func status(t *testing.T, url string, change func(*http.Request)) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	change(r)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
