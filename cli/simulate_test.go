// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/substorm/substorm/cli/archive"
	"github.com/substorm/substorm/cli/simulate"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const mixture = `
sources:
- {name: camera, count: 3, sizes: [20k, 300k], deviationPercent: 20, rate: 5, poisson: true}
- {name: mag, protocol: UDP, sizes: [140, 236], rate: 200, bursts: {lasting: 500ms, silence: 200ms}}
`

// TestSimulate: what the report says was receipted is what the archive lists,
// and what it says left as datagrams is in segments.
func TestSimulate(t *testing.T) {
	s := newStation(t)
	model := filepath.Join(t.TempDir(), "mixture.yaml")
	if err := os.WriteFile(model, []byte(mixture), 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr, code := runProgram(t, "substorm", "simulate", "--model", model, "--seed", "5", "--duration", "4s", "-o", "json", "--quiet",
		"--to", "mag="+testenv.Loopback(s.mag), "--to", testenv.Loopback(s.camera))
	var report simulate.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v\n%s\n%s", code, err, out, stderr)
	}
	camera, mag := report.Sources[0], report.Sources[1]
	if report.Seed != 5 || camera.Sent == 0 || camera.Receipted != camera.Sent || mag.Sent == 0 || mag.Receipted != 0 || report.Total.Sent != camera.Sent+mag.Sent {
		t.Errorf("report: %+v", report)
	}
	histogram, err := hdrhistogram.Decode([]byte(report.Receipt.Histogram))
	if err != nil || histogram.TotalCount() != camera.Receipted || report.Receipt.Count != camera.Receipted || report.Receipt.Max < report.Receipt.P50 {
		t.Errorf("histogram: %v, %+v", err, report.Receipt)
	}
	waitFor(t, func() error { return segmentsHold(s, t, uint64(mag.Sent)) })

	// Too large an object has no receipt, and the exit code says so.
	out, stderr, code = runProgram(t, "substorm", "simulate", "--model", "rtemp", "--seed", "1", "--duration", "1s", "--rate", "4", "--to", testenv.Loopback(s.small))
	if code != 1 || !strings.Contains(out, "refused ObjectTooLarge: 4") || !strings.Contains(stderr, "4 of 4 objects and datagrams failed") {
		t.Errorf("of objects that are too large: exit code %d\n%s\n%s", code, out, stderr)
	}
	// Datagrams to a closed port fail, and the exit code says so.
	nobody := testenv.Loopback(testenv.FreePort(t))
	if out, stderr, code = runProgram(t, "substorm", "simulate", "--model", "oasis", "--rate", "50", "--duration", "1s", "--to", nobody); code != 1 || !strings.Contains(stderr, nobody) {
		t.Errorf("of datagrams to a closed port: exit code %d\n%s\n%s", code, out, stderr)
	}

	s.gateway.Stop() // closes the manifest's open parts
	var objects, bytes int64
	for _, n := range jsonLines[wire.Notice](t, s.query(t, "ls", "-i", "camera", "-o", "json")) {
		objects, bytes = objects+1, bytes+n.Size
	}
	if objects != camera.Receipted || bytes != camera.ReceiptedBytes {
		t.Errorf("%d objects with %d bytes are listed, want %d with %d", objects, bytes, camera.Receipted, camera.ReceiptedBytes)
	}
	if err := ledgerHas(t, s, uint64(camera.Receipted), uint64(mag.Sent)); err != nil {
		t.Error(err)
	}
}

// ledgerHas returns nil where the ledger agrees with what was sent.
func ledgerHas(t *testing.T, s *station, objects, datagrams uint64) error {
	t.Helper()
	var camera, mag wire.Totals
	for _, l := range jsonLines[archive.Ledger](t, s.query(t, "ledger", "-o", "json")) {
		switch l.Instrument {
		case "camera":
			camera = camera.Plus(l.Received)
		case "mag":
			mag = mag.Plus(l.Received)
		}
	}
	if camera.Objects != objects || camera.Acknowledged != objects || mag.Datagrams != datagrams {
		return fmt.Errorf("ledger: camera %+v, mag %+v; sent %d and %d", camera, mag, objects, datagrams)
	}
	return nil
}
