// SPDX-License-Identifier: Apache-2.0

package hapi_test

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// client reads a dataset with hapiclient, in both of its formats, and prints it.
const client = `
import sys
from hapiclient import hapi, hapitime2datetime
server, start, stop = sys.argv[1:4]
def text(value): # bytes or str, as numpy has it
    return value.decode() if isinstance(value, bytes) else str(value)
print([d['id'] for d in hapi(server)['catalog']])
print([p['name'] for p in hapi(server, 'mag/field')['parameters']])
for format in ['binary', 'csv']:
    data, meta = hapi(server, 'mag/field', '', start, stop, format=format, cache=False, usecache=False)
    print(format, len(data), data['B'].shape, data['B'].dtype, data['n'].dtype)
    print(' '.join('%.17g' % x for x in data['B'].sum(axis=0)), data['n'].sum(), text(data['mode'][0]), text(data['Time'][0]), text(data['Time'][-1]))
    times = hapitime2datetime(data['Time'])
    print(all(a < b for a, b in zip(times, times[1:])))
data, meta = hapi(server, 'mag/field', 'n', start, stop, cache=False, usecache=False, parallel=True, n_chunks=3)
print(len(data), data['n'].sum())
`

// hapiclient returns a python that has hapiclient, in a folder of the test's.
func hapiclient(t *testing.T) string {
	t.Helper()
	venv := filepath.Join(t.TempDir(), "venv")
	python := filepath.Join(venv, "bin", "python")
	for _, args := range [][]string{{"python3", "-m", "venv", venv}, {python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "hapiclient"}} {
		out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
		if err == nil {
			continue
		}
		if os.Getenv("CI") != "" {
			t.Fatalf("%s: %v, and CI must run this test\n%s", strings.Join(args, " "), err, out)
		}
		t.Skipf("no hapiclient: %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return python
}

// TestClient: the Python client of the people who made HAPI reads what was sent.
func TestClient(t *testing.T) {
	t.Parallel()
	python := hapiclient(t)
	l := newLab(t, magnetometer())
	const seconds, perSegment = 3600, 600
	var sum [3]float64
	n := 0
	for from := 0; from < seconds; from += perSegment {
		var datagrams []datagram
		for i := from; i < from+perSegment; i++ {
			b := [3]float64{20826.85 + math.Round(1000*math.Sin(float64(i)/100))/100, -86.75, float64(i) / 4}
			for j := range sum {
				sum[j] += b[j]
			}
			n += i
			datagrams = append(datagrams, sample(second(i), fmt.Sprintf("%v,%v,%v,%d,auto", b[0], b[1], b[2], i)))
		}
		l.segment(t, "mag", "raw", uint64(from+1), datagrams...)
	}
	program := filepath.Join(t.TempDir(), "read.py")
	if err := os.WriteFile(program, []byte(client), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), python, program, l.url, start.Format(time.RFC3339), start.Add(time.Hour).Format(time.RFC3339))
	command.Env = append(os.Environ(), "HOME="+t.TempDir(), "TMPDIR="+t.TempDir())
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 9 {
		t.Fatalf("%s", out)
	}
	if lines[0] != "['mag/field']" || lines[1] != "['Time', 'B', 'n', 'mode']" || lines[8] != fmt.Sprintf("%d %d", seconds, n) {
		t.Errorf("%s", out)
	}
	for i, format := range []string{"binary", "csv"} {
		if want := fmt.Sprintf("%s %d (%d, 3) float64 int32", format, seconds, seconds); lines[2+3*i] != want {
			t.Errorf("got %s, want %s", lines[2+3*i], want)
		}
		var got [3]float64
		var total int
		var mode, first, last string
		if _, err := fmt.Sscan(lines[3+3*i], &got[0], &got[1], &got[2], &total, &mode, &first, &last); err != nil {
			t.Fatalf("%v: %s", err, lines[3+3*i])
		}
		for j := range sum { // numpy adds in another order
			if math.Abs(got[j]-sum[j]) > 1e-9*math.Abs(sum[j]) {
				t.Errorf("%s: component %d sums up to %v, want %v", format, j, got[j], sum[j])
			}
		}
		if total != n || mode != "auto" || first != "2026-11-20T22:00:00.000Z" || last != "2026-11-20T22:59:59.000Z" || lines[4+3*i] != "True" {
			t.Errorf("%s: %s, %s", format, lines[3+3*i], lines[4+3*i])
		}
	}
}
