// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

func notices(t *testing.T, out string) []wire.Notice {
	t.Helper()
	var all []wire.Notice
	for line := range strings.Lines(out) {
		n, err := wire.Decode[wire.Notice]([]byte(line))
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		all = append(all, n)
	}
	return all
}

func notice(instrument string, r wire.Record) wire.Notice {
	return wire.Notice{Site: site, Instrument: instrument, Record: r}
}

func TestList(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	flags := f.flags(t)
	earlier, frame, late := notice("allsky-1", f.earlier), notice("allsky-1", f.frame), notice("allsky-1", f.late)
	segment := notice("mag-1", f.segment)
	for name, c := range map[string]struct {
		args []string
		want []wire.Notice
	}{
		"everything":         {nil, []wire.Notice{earlier, frame, late, segment}},
		"with duplicates":    {[]string{"--duplicates"}, []wire.Notice{earlier, frame, notice("allsky-1", f.duplicate), late, segment}},
		"a state":            {[]string{"--state", "Duplicate"}, []wire.Notice{notice("allsky-1", f.duplicate)}},
		"one instrument":     {[]string{"--instrument", "mag-1"}, []wire.Notice{segment}},
		"two instruments":    {[]string{"-i", "mag-1,allsky-1", "--day", "2026-11-21"}, []wire.Notice{frame, late, segment}},
		"a day":              {[]string{"--day", "2026-11-20"}, []wire.Notice{earlier}},
		"from a day on":      {[]string{"--since", "2026-11-21"}, []wire.Notice{frame, late, segment}},
		"up to a day":        {[]string{"--until", "2026-11-20"}, []wire.Notice{earlier}},
		"a range":            {[]string{"--since", "2026-11-20", "--until", "2026-11-21", "-i", "allsky-1"}, []wire.Notice{earlier, frame, late}},
		"a day of nothing":   {[]string{"--day", "2020-01-01"}, nil},
		"no such instrument": {[]string{"-i", "riometer-9"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			out, notes := must(t, append(append([]string{"ls", "-o", "json"}, flags...), c.args...)...)
			if diff := cmp.Diff(c.want, notices(t, out)); diff != "" {
				t.Errorf("list (-want +got):\n%s", diff)
			}
			if c.want == nil && !strings.Contains(notes, "lists nothing here; it has the instruments allsky-1, mag-1") {
				t.Errorf("said %q", notes)
			}
		})
	}
}

func TestListAsATable(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{TLS: true})
	flags := f.flags(t)
	out, notes := must(t, append([]string{"ls", "-i", "allsky-1", "--day", "2026-11-21"}, flags...)...)
	want := "RECEIVED              SIZE        STATE       SHA-256       KEY\n" +
		"2026-11-21 12:00:00Z  5 B         Current     " + f.frame.Digest.String()[:12] + "  " + f.frame.Key + "\n" +
		"2026-11-21 13:00:00Z  7 B         Current     " + f.late.Digest.String()[:12] + "  " + f.late.Key + "\n"
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if !strings.Contains(notes, "2 objects, 12 B") {
		t.Errorf("said %q", notes)
	}
	out, _ = must(t, append([]string{"ls", "-i", "mag-1", "-o", "wide"}, flags...)...)
	for _, part := range []string{f.segment.Digest.String(), "600", "2026-11-21T12:00:00.123456789Z", "text/plain", "192.0.2.7:40001", "gateway-0", f.segment.Key} {
		if !strings.Contains(out, part) {
			t.Errorf("the wide table lacks %s:\n%s", part, out)
		}
	}
}

func TestListSaysWhatIsWrong(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	flags := f.flags(t)
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"bad day":        {append([]string{"ls", "--day", "21.11.2026"}, flags...), "write YYYY-MM-DD"},
		"day and range":  {append([]string{"ls", "--day", "today", "--since", "today"}, flags...), "give one of them"},
		"backward range": {append([]string{"ls", "--since", "2026-11-21", "--until", "2026-11-20"}, flags...), "comes after"},
		"bad state":      {append([]string{"ls", "--state", "current"}, flags...), "Current, Superseded"},
		"bad output":     {append([]string{"ls", "-o", "xml"}, flags...), "table, wide, json, yaml"},
		"no such bucket": {append(append([]string{"ls"}, flags...), "--s3-bucket", "nowhere"), "nowhere"},
		"no endpoint":    {[]string{"ls", "--code", site}, "--s3-endpoint"},
		"code and site":  {append([]string{"ls", "--site", "x"}, flags...), "give one of them"},
		"wrong keys":     {append(append([]string{"ls"}, flags...), "--s3-credentials-dir", t.TempDir()), objectstore.FileAccessKeyID},
	} {
		if out, _, err := run(t, c.args...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want an error that says %q (%s)", name, err, c.says, out)
		}
	}
}

// TestListIsNotCutShort: a day that cannot be read ends the list with an error.
func TestListIsNotCutShort(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	key := wire.ManifestPartKey(site, "allsky-1", "2026-11-21", 3)
	if err := f.store.Put(t.Context(), key, strings.NewReader("damaged"), 7, objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	_, _, err := run(t, append([]string{"ls"}, f.flags(t)...)...)
	if err == nil || !strings.Contains(err.Error(), "not complete") || !strings.Contains(err.Error(), key) {
		t.Errorf("got %v", err)
	}
}

func TestGet(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	flags := f.flags(t)
	t.Chdir(t.TempDir())
	for _, name := range []string{f.frame.Key, f.frame.Digest.String(), f.frame.Digest.String()[:8]} {
		out, _ := must(t, append([]string{"get", name, "--file", "-"}, flags...)...)
		if out != "frame" {
			t.Errorf("get %s: %q", name, out)
		}
	}
	must(t, append([]string{"get", f.late.Key}, flags...)...)
	must(t, append([]string{"get", f.late.Digest.String(), "--file", "late.txt"}, flags...)...)
	for _, file := range []string{filepath.Base(f.late.Key), "late.txt"} {
		if data, err := os.ReadFile(file); err != nil || string(data) != "frame 2" {
			t.Errorf("%s: %q, %v", file, data, err)
		}
	}
	for name, c := range map[string]struct{ what, says string }{
		"an existing file":   {f.late.Key, "exists"},
		"an unknown key":     {"o/thule/allsky-1/r/2026/11/21/none", "substorm archive ls"},
		"an unknown digest":  {strings.Repeat("0", 64), "lists no object"},
		"a key of no object": {wire.ManifestPartKey(site, "allsky-1", "2026-11-21", 1), "cannot be verified"},
	} {
		if _, _, err := run(t, append([]string{"get", c.what}, flags...)...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("get of %s: %v, want an error that says %q", name, err, c.says)
		}
	}
}

// TestGetVerifies: bytes that changed in the store are no object.
func TestGetVerifies(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	flags := f.flags(t)
	t.Chdir(t.TempDir())
	metadata, err := wire.ObjectMetadata(notice("allsky-1", f.frame))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.store.Put(t.Context(), f.frame.Key, strings.NewReader("Frame"), 5, objectstore.PutOptions{Metadata: metadata}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(t, append([]string{"get", f.frame.Key, "--file", "frame.txt"}, flags...)...); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("got %v", err)
	}
	left, err := os.ReadDir(".")
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if out, _, err := run(t, append([]string{"get", f.frame.Key, "--file", "-"}, flags...)...); err == nil {
		t.Errorf("got %q and no error", out)
	}
}

func TestGetOfAnAmbiguousDigest(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	other := f.late
	other.Digest = f.late.Digest
	other.Digest[31] ^= 1
	other.ID, other.Key = "o/thule/allsky-1/x", "o/thule/allsky-1/x"
	list(t, f.store, "allsky-1", "2026-11-21", 3, other)
	_, _, err := run(t, append([]string{"get", f.late.Digest.String()[:20]}, f.flags(t)...)...)
	if err == nil || !strings.Contains(err.Error(), "more digits") {
		t.Errorf("got %v", err)
	}
}

// TestVariables: each flag may stand in the environment, as in a pod.
func TestVariables(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{TLS: true})
	flags := f.flags(t)
	for i := 0; i < len(flags); i += 2 {
		name := strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(flags[i], "--"), "-", "_"))
		t.Setenv("SUBSTORM_"+name, flags[i+1])
	}
	out, _ := must(t, "ls", "-o", "json")
	if n := len(notices(t, out)); n != 4 {
		t.Errorf("%d objects, want 4", n)
	}
	if _, _, err := run(t, "ls", "--s3-bucket", "another"); err == nil || !strings.Contains(err.Error(), "another") {
		t.Errorf("a flag does not win over its variable: %v", err)
	}
	if _, _, err := run(t, "ls", "--tls-server-name", "localhost"); err != nil {
		t.Errorf("by another name in the certificate: %v", err)
	}
	if _, _, err := run(t, "ls", "--tls-server-name", "elsewhere.example"); err == nil {
		t.Error("a server whose certificate has another name was believed")
	}
}

// A retracted object is returned only if it is asked for, whichever name is used.
func TestGetOfTheRetracted(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	flags := f.flags(t)
	gone := f.frame
	gone.State, gone.Reason, gone.RetractedAt = wire.StateRetracted, "the shutter was closed", &noon
	list(t, f.store, "allsky-1", "2026-11-21", 3, gone)
	for _, name := range []string{f.frame.Key, f.frame.Digest.String()} {
		for _, verb := range []string{"get", "cat"} {
			args := append([]string{verb, name}, flags...)
			if verb == "get" {
				args = append(args, "--file", "-")
			}
			out, _, err := run(t, args...)
			if err == nil || out != "" || !strings.Contains(err.Error(), "retracted at 2026-11-21T12:00:00.123456789Z (the shutter was closed)") {
				t.Errorf("%s %s: %q, %v", verb, name, out, err)
			}
			if out, _ := must(t, append(args, "--retracted")...); out != "frame" {
				t.Errorf("%s %s --retracted: %q", verb, name, out)
			}
		}
	}
	out, _ := must(t, append([]string{"ls", "--state", "Retracted", "-o", "json"}, flags...)...)
	if diff := cmp.Diff([]wire.Notice{notice("allsky-1", gone)}, notices(t, out)); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
}
