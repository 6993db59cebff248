// SPDX-License-Identifier: Apache-2.0

package storm_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/cli/storm"
	"github.com/substorm/substorm/internal/usage"
)

const march = "../../operator/surge/simulate/testdata/kp-2015-03.csv"

func replay(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := storm.Command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{"replay", "-q"}, args...))
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// TestReplay: the table, the document and the picture of the same draws.
func TestReplay(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "storm.svg")
	table, err := replay(t, march, "--draws", "2", "--plot", plot)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"POLICY", "\nhpa ", "\nkeda ", "\nknative ", "\nours, no signal ", "\nours ", "\noracle ", "\npacked oracle ", "2 draws, seed 1;"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in\n%s", want, table)
		}
	}
	again, err := replay(t, march, "--draws", "2")
	if err != nil || again != table {
		t.Errorf("the same seed came to something else, %v:\n%s\n%s", err, table, again)
	}
	other, err := replay(t, march, "--draws", "2", "--seed", "7")
	if err != nil || other == table {
		t.Errorf("another seed came to the same, %v", err)
	}
	picture, err := os.ReadFile(plot)
	if err != nil {
		t.Fatal(err)
	}
	elements := 0
	for in := xml.NewDecoder(bytes.NewReader(picture)); ; elements++ {
		if _, err := in.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if elements < 100 || !bytes.Contains(picture, []byte("ours, no signal")) || !bytes.Contains(picture, []byte("17 Mar")) || bytes.Contains(picture, []byte("NaN")) {
		t.Errorf("%d elements:\n%.2000s", elements, picture)
	}
}

// TestPicture: the documentation's picture is what `make pictures` draws now.
func TestPicture(t *testing.T) {
	t.Parallel()
	plot := filepath.Join(t.TempDir(), "storm.svg")
	if _, err := replay(t, "../../docs/samples/storm/kp.csv", "--manifests", "../../docs/samples/storm/site.yaml", "--draws", "20", "--plot", plot); err != nil {
		t.Fatal(err)
	}
	drawn, err := os.ReadFile(plot)
	if err != nil {
		t.Fatal(err)
	}
	if shown, err := os.ReadFile("../../docs/pictures/storm.svg"); err != nil || !bytes.Equal(shown, drawn) {
		t.Errorf("docs/pictures/storm.svg is not what the replay draws now: draw it anew with the last command of `make pictures` (%v)", err)
	}
}

func TestReplayAsJSON(t *testing.T) {
	text, err := replay(t, march, "--draws", "1", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Draws    int
		Policies []struct {
			Policy           string
			RefusedShare     struct{ P95 float64 }
			PodHoursToOracle struct{ Median float64 }
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if got.Draws != 1 || len(got.Policies) != 7 || got.Policies[5].Policy != "oracle" || got.Policies[5].PodHoursToOracle.Median != 1 || got.Policies[5].RefusedShare.P95 != 0 {
		t.Errorf("%+v", got)
	}
}

// TestShortFile: three hours are enough, and so is a file without a storm.
func TestShortFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kp.csv")
	if err := os.WriteFile(file, []byte("time,kp\n2015-03-17T12:00:00Z,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	plot := filepath.Join(t.TempDir(), "storm.svg")
	if _, err := replay(t, file, "--draws", "2", "--plot", plot); err != nil {
		t.Error(err)
	}
	picture, err := os.ReadFile(plot)
	if err != nil || bytes.Contains(picture, []byte("NaN")) || !bytes.Contains(picture, []byte("Draw 0 of seed 1: 2015-03-17 to 2015-03-17, without a crowd")) {
		t.Errorf("%v: %s", err, picture)
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.csv")
	if err := os.WriteFile(bad, []byte("time,kp\n2015-03-17T12:00:00Z,12\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args  []string
		want  string
		usage bool
	}{
		"no file":       {[]string{filepath.Join(dir, "none.csv")}, "no such file", false},
		"a bad line":    {[]string{bad}, bad + ": line 2: ", false},
		"no draws":      {[]string{march, "--draws", "0"}, "--draws 0: 1 to 10000", true},
		"many draws":    {[]string{march, "--draws", "20000"}, "--draws 20000: 1 to 10000", true},
		"nowhere to go": {[]string{march, "--draws", "1", "--plot", filepath.Join(dir, "none", "x.svg")}, "--plot: open", false},
		"no arguments":  {nil, "accepts 1 arg", false},
		"no manifests":  {[]string{march, "--manifests", ""}, "--manifests names no file", true},
		"only a name":   {[]string{march, "--site", "hub"}, "--site chooses one of the Sites in --manifests", true},
	} {
		_, err := replay(t, c.args...)
		var wrong usage.Error
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, &wrong) != c.usage {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestManifests: the levels of a Site in a file are played, and not the default ones.
func TestManifests(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const site = "apiVersion: substorm.dev/v1alpha1\nkind: Site\nmetadata: {name: hub}\nspec:\n  code: hub\n"
	const surge = `  surge: {levels: [{name: storm, anyOf: [{allOf: [{quantity: Kp, atLeast: "1"}]}], floors: [{kind: FeedServer, replicas: 30}]}]}` + "\n"
	hours := func(args ...string) float64 {
		text, err := replay(t, append([]string{march, "--draws", "1", "-o", "json"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Policies []struct {
				Policy   string
				PodHours struct{ Median float64 }
			}
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		return got.Policies[4].PodHours.Median
	}
	usual, declared := hours(), hours("--manifests", file("surge.yaml", site+surge))
	if declared < 2*usual {
		t.Errorf("a floor of 30 pods in nearly all of the month takes %.0f hours, the default levels %.0f", declared, usual)
	}
	for name, c := range map[string]struct{ file, want string }{
		"another version": {file("v9.yaml", "apiVersion: substorm.dev/v9\nkind: Site\nmetadata: {name: x}\n"),
			"substorm storm replay does not read kind Site of substorm.dev/v9: it reads the Site of substorm.dev/v1alpha1, and passes over other kinds; take it out of what --manifests names"},
		"no Site":          {file("secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n"), "--manifests: no Site is declared in"},
		"no levels":        {file("site.yaml", site), "declares no levels"},
		"floors of others": {file("one.yaml", site+strings.Replace(surge, "kind: FeedServer", "kind: FeedServer, name: inner", 1)), "has a floor of all FeedServers"},
		"no file":          {filepath.Join(dir, "none.yaml"), "none.yaml"},
		"misspelled":       {file("misspelled.yaml", site+strings.Replace(surge, "anyOf", "anyof", 1)), "unknown fields: spec.surge.levels[0].anyof"},
		"no number":        {file("nan.yaml", site+strings.Replace(surge, `"1"`, `"one"`, 1)), "spec.surge.levels[0].anyOf[0].allOf[0].atLeast"},
		"against rules":    {file("rules.yaml", site+strings.Replace(surge, `"1"`, `"99"`, 1)), "Kp is 1 to 9"},
	} {
		if _, err := replay(t, march, "--draws", "1", "--manifests", c.file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFolder: of a folder with all manifests of a cluster, the Site that is named is played.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	site := func(name, kp string) string {
		return "apiVersion: substorm.dev/v1alpha1\nkind: Site\nmetadata: {name: " + name + "}\nspec:\n  surge: {levels: [{name: storm, anyOf: [{allOf: [{quantity: Kp, atLeast: \"" + kp +
			"\"}]}], floors: [{kind: FeedServer, replicas: 30}]}]}\n---\n"
	}
	for name, text := range map[string]string{
		"apps.yaml":  "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s3}\n",
		"sites.yaml": site("inland", "1") + site("coast", "8"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	inland, err := replay(t, march, "--draws", "1", "--manifests", dir, "--site", "inland")
	if err != nil {
		t.Fatal(err)
	}
	if coast, err := replay(t, march, "--draws", "1", "--manifests", dir, "--site", "coast"); err != nil || coast == inland {
		t.Errorf("%v: both Sites come to\n%s", err, inland)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"choose one of them with --site: " + filepath.Join(dir, "sites.yaml") + `:1: Site "inland", `, nil},
		{`no such Site is declared, but `, []string{"--site", "north"}},
	} {
		_, err := replay(t, append([]string{march, "--draws", "1", "--manifests", dir}, c.args...)...)
		var wrong usage.Error
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.args, err, c.want)
		}
	}
}

// TestWithoutWind: what is left out of a Site's levels, because the file does not have it, is said.
func TestWithoutWind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "site.yaml")
	text := `{apiVersion: substorm.dev/v1alpha1, kind: Site, metadata: {name: hub}, spec: {surge: {levels: [
  {name: wind, anyOf: [{allOf: [{quantity: Bz, atMost: "-10", for: 10m}, {quantity: Speed, atLeast: "500"}]}], floors: [{kind: FeedServer, replicas: 6}]},
  {name: both, anyOf: [{allOf: [{quantity: Kp, atLeast: "7"}]}, {allOf: [{quantity: Bz, atMost: "-20"}]}], floors: [{kind: FeedServer, replicas: 12}]}]}}}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	table, err := replay(t, march, "--draws", "1", "--manifests", file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Each policy has 2 to 64 pods, and a calm day needs 3 on average. Replicas and maxReplicas of FeedServers are not played.\n",
		"Level wind: rules that ask for Bz or Speed are not played, because " + march + " has no such column. It has no other rule, and so it never begins.\n",
		"Level both: rules that ask for Bz are not played, because " + march + " has no such column.\n",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in\n%s", want, table)
		}
	}
	onlyKp := filepath.Join(t.TempDir(), "site.yaml")
	if err := os.WriteFile(onlyKp, []byte(strings.Replace(text, `, {allOf: [{quantity: Bz, atMost: "-20"}]}`, "", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	same, err := replay(t, march, "--draws", "1", "--manifests", onlyKp)
	if table, _, _ := strings.Cut(table, "\n\n"); err != nil || !strings.HasPrefix(same, table) {
		t.Errorf("%v: with a rule that is left out\n%s\nand without it\n%s", err, table, same)
	}
}
