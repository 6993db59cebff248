// SPDX-License-Identifier: Apache-2.0

//go:build linux

package importer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/cli/archive"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	site       = "thule"
	instrument = "allsky-1"
	template   = "{year}/{month}/{day}/{station}_{hour}{minute}.{any}"
	// asProgram makes the test binary act as `substorm import`.
	asProgram = "SUBSTORM_TEST_IMPORT"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		cmd := Command()
		cmd.SetArgs(os.Args[1:])
		if cmd.Execute() != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// lab is a Site with a real gateway and a real archivist.
type lab struct {
	t     *testing.T
	js    jetstream.JetStream
	store objectstore.Store
	flags []string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	server, minio := testenv.NATS(t, testenv.NATSOptions{Domain: site}), testenv.MinIO(t, testenv.MinIOOptions{})
	l := &lab{t: t, js: server.JetStream(t), store: minio.Bucket(t, "archive")}
	testenv.CreateSite(t, l.js, site)
	testenv.StartGateway(t, testenv.GatewayOptions{Site: site, NATS: server, MinIO: minio, Bucket: "archive",
		Instruments: []wire.InstrumentEntry{testenv.InstrumentTCP(instrument, testenv.FreePort(t))}})
	testenv.StartArchivist(t, testenv.ArchivistOptions{Site: site, NATS: server, MinIO: minio, Bucket: "archive"})
	secrets := testenv.CredentialsDir(t, minio.Root())
	for _, name := range []string{objectstore.FileAccessKeyID, objectstore.FileSecretAccessKey} { // for a user who is not root
		if err := os.Chmod(filepath.Join(secrets, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l.flags = []string{"--code", site, "--s3-endpoint", minio.URL(), "--s3-bucket", "archive", "--s3-credentials-dir", secrets, "--nats-servers", server.URL()}
	return l
}

// args are the command line of an import.
func (l *lab) args(tree string, more ...string) []string {
	return append(append([]string{tree, "-o", "json", "--instrument", instrument, "--name-template", template}, more...), l.flags...)
}

// run imports and returns what was reported.
func (l *lab) run(tree string, more ...string) (result, error) {
	l.t.Helper()
	var out, notes bytes.Buffer
	cmd := Command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetErr(&notes)
	cmd.SetArgs(l.args(tree, more...))
	ctx, cancel := context.WithTimeout(l.t.Context(), testenv.Patience)
	defer cancel()
	err := cmd.ExecuteContext(ctx)
	l.t.Logf("import %s %q: %v\n%s%s", tree, more, err, out.String(), notes.String())
	return readResult(l.t, out.String()), err
}

func (l *lab) must(tree string, more ...string) result {
	l.t.Helper()
	r, err := l.run(tree, more...)
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// result is a report.
type result struct {
	Summary
	reasons  map[string]Reason
	versions []string
}

func readResult(t *testing.T, out string) result {
	t.Helper()
	r := result{reasons: map[string]Reason{}}
	for text := range strings.Lines(out) {
		var line Line
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		switch line.Outcome {
		case OutcomeUnplaced:
			if line.Error == "" {
				t.Errorf("no word why %s was not placed", line.Name)
			}
			r.reasons[line.Name] = line.Reason
		case OutcomeVersion:
			r.versions = append(r.versions, line.Name)
		case OutcomeSummary:
			if err := json.Unmarshal([]byte(text), &r.Summary); err != nil {
				t.Fatal(err)
			}
		}
	}
	return r
}

// wants compares the sums that do not depend on time.
func (r result) wants(t *testing.T, want Summary) {
	t.Helper()
	want.Outcome = OutcomeSummary
	opts := cmp.Options{cmpopts.IgnoreFields(Summary{}, "Seconds", "Run", "Unplaced"), cmpopts.EquateEmpty()}
	if diff := cmp.Diff(want, r.Summary, opts); diff != "" {
		t.Errorf("summary (-want +got)\n%s", diff)
	}
}

// frame is a file or object of a tree.
type frame struct {
	name, body string
	at         time.Time
}

// frames are n of them, one each hour.
func frames(n int) []frame {
	from := time.Date(2015, 3, 17, 6, 30, 0, 0, time.UTC)
	var all []frame
	for i := range n {
		at := from.Add(time.Duration(i) * time.Hour)
		all = append(all, frame{at.Format("2006/01/02/") + "rank_" + at.Format("1504") + ".fits", fmt.Sprintf("frame %d", i), at.Add(97 * time.Second)})
	}
	return all
}

func writeFiles(t *testing.T, dir string, all ...frame) {
	t.Helper()
	for _, f := range all {
		path := filepath.Join(dir, f.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(f.body), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, f.at, f.at); err != nil {
			t.Fatal(err)
		}
	}
}

func (l *lab) putObjects(prefix string, all ...frame) {
	l.t.Helper()
	for _, f := range all {
		if err := l.store.Put(l.t.Context(), prefix+f.name, strings.NewReader(f.body), int64(len(f.body)), objectstore.PutOptions{}); err != nil {
			l.t.Fatal(err)
		}
	}
}

// listed returns what the manifests list, by key; nothing may stand there twice.
func (l *lab) listed() map[string][]wire.Record {
	l.t.Helper()
	all, ids := map[string][]wire.Record{}, map[string]bool{}
	for day, err := range manifest.Days(l.t.Context(), l.store, site, instrument) {
		if err != nil {
			l.t.Fatal(err)
		}
		files, err := manifest.List(l.t.Context(), l.store, site, instrument, day)
		if err != nil {
			l.t.Fatal(err)
		}
		for r, err := range files.Lines(l.t.Context(), l.store) {
			if err != nil {
				l.t.Fatal(err)
			}
			if ids[r.ID] || r.State != wire.StateCurrent {
				l.t.Errorf("%s is listed twice, or retracted: %s", r.ID, r.State)
			}
			ids[r.ID] = true
			all[r.Key] = append(all[r.Key], r)
		}
	}
	return all
}

// await waits until the manifests list n objects.
func (l *lab) await(n int) map[string][]wire.Record {
	l.t.Helper()
	var all map[string][]wire.Record
	for range testenv.Attempts() {
		all = l.listed()
		sum := 0
		for _, records := range all {
			sum += len(records)
		}
		if sum == n {
			return all
		}
	}
	l.t.Fatalf("the manifests do not list %d objects: %v", n, all)
	return nil
}

// archive runs `substorm archive`.
func (l *lab) archive(args ...string) (string, error) {
	l.t.Helper()
	var out, notes bytes.Buffer
	cmd := archive.Command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetErr(&notes)
	cmd.SetArgs(append(args, l.flags...))
	err := cmd.ExecuteContext(l.t.Context())
	return out.String(), err
}

// compareLedger: the columns are those of what was imported, day for day.
func (l *lab) compareLedger(all map[string][]wire.Record) {
	l.t.Helper()
	want := map[wire.Day]wire.Totals{}
	for _, records := range all {
		for _, r := range records {
			want[wire.DayOf(r.ReceivedAt)] = want[wire.DayOf(r.ReceivedAt)].Plus(totalsOf(r))
		}
	}
	out, err := l.archive("ledger", "-o", "json")
	if err != nil {
		l.t.Fatal(err)
	}
	got := map[wire.Day]wire.Totals{}
	for text := range strings.Lines(out) {
		var day archive.Ledger
		if err := json.Unmarshal([]byte(text), &day); err != nil {
			l.t.Fatal(err)
		}
		if !day.Agree || day.Received.Acknowledged != day.Announced.Objects {
			l.t.Errorf("%s: %q", day.Day, day.Differences)
		}
		got[day.Day] = day.Announced
	}
	if diff := cmp.Diff(want, got); diff != "" {
		l.t.Errorf("the ledger is not what is listed (-listed +ledger)\n%s", diff)
	}
}

// bodies compares what the archive gives for each frame with what it held.
func (l *lab) compareBodies(key func(frame) string, all ...frame) {
	l.t.Helper()
	for _, f := range all {
		for _, what := range []string{key(f), fmt.Sprintf("%x", sha256.Sum256([]byte(f.body)))} {
			out, err := l.archive("get", what, "--file", "-")
			if err != nil || out != f.body {
				l.t.Errorf("get %s: %q, %v, want %q", what, out, err, f.body)
			}
		}
	}
}
