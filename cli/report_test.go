// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/cli/archive"
	"github.com/substorm/substorm/internal/testenv"
)

// TestReportOfWhatWasSent: the report's totals are what a sender has receipts for, and
// the ledger's, with objects that were sent twice and datagrams; inspect names the duplicate.
func TestReportOfWhatWasSent(t *testing.T) {
	s := newStation(t)
	dir := t.TempDir()
	var digests []string
	for i := range 12 {
		data := make([]byte, 1000+i)
		_, _ = rand.Read(data)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("frame-%02d", i)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must := func(args ...string) {
		t.Helper()
		if _, stderr, code := runProgram(t, "substorm", args...); code != 0 {
			t.Fatalf("%v: exit code %d\n%s", args, code, stderr)
		}
	}
	sent := filepath.Join(t.TempDir(), "sent.jsonl")
	must("send", "--quiet", "--to", testenv.Loopback(s.camera), "--report", sent, dir)
	must("send", "--quiet", "--to", testenv.Loopback(s.camera), filepath.Join(dir, "frame-03"))
	datagrams := filepath.Join(t.TempDir(), "datagrams")
	if err := os.WriteFile(datagrams, bytes.Repeat([]byte("a line of values\n"), 50), 0o600); err != nil {
		t.Fatal(err)
	}
	must("send", "--quiet", "--udp", "--to", testenv.Loopback(s.mag), datagrams)
	for _, r := range receipts(t, sent) {
		digests = append(digests, r.SHA256)
	}

	var report archive.Report
	waitFor(t, func() error {
		out, _, code := runProgram(t, "substorm", append([]string{"archive", "report", "--since", "yesterday", "--until", "today", "-o", "json"}, s.archive...)...)
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			return err
		}
		of := map[string]archive.InstrumentReport{}
		for _, in := range report.Instruments {
			of[in.Instrument] = in
		}
		camera, mag := of["camera"], of["mag"]
		if code != 0 || !report.Agree || camera.Objects != 12 || camera.Duplicates != 1 || mag.Datagrams == 0 {
			return fmt.Errorf("exit code %d: %s", code, out)
		}
		return nil
	})
	if len(digests) != 12 {
		t.Fatalf("%d receipts", len(digests))
	}
	duplicates := 0
	for _, digest := range digests {
		out, stderr, code := runProgram(t, "substorm", append([]string{"archive", "inspect", digest, "-o", "json"}, s.archive...)...)
		var known archive.Known
		if err := json.Unmarshal([]byte(out), &known); code != 0 || err != nil {
			t.Fatalf("inspect %s: exit code %d, %v\n%s", digest, code, err, stderr)
		}
		if known.Instrument != "camera" || known.Record.Digest.String() != digest || !known.Bytes.There || !strings.HasPrefix(known.Record.Source, "127.0.0.1:") {
			t.Errorf("inspect %s: %s", digest, out)
		}
		duplicates += len(known.Duplicates)
	}
	if duplicates != 1 {
		t.Errorf("%d duplicates, want 1", duplicates)
	}
	if out, stderr, code := runProgram(t, "substorm", append([]string{"archive", "gaps", "--day", "1999-01-01"}, s.archive...)...); code != 0 || !strings.Contains(out, "nothing was compared yet") {
		t.Errorf("gaps: exit code %d\n%s%s", code, out, stderr)
	}
}
