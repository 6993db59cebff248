// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
)

// patience is how long a test waits for what must come. It decides no test.
const patience = testenv.Patience

// outageLasts is how long the store and JetStream are away in the tests that say
// so: no longer than these need for what they do, or SUBSTORM_TEST_OUTAGE, such as
// 3m, which is how long it takes a server to come back on another node.
func outageLasts(t *testing.T) time.Duration {
	t.Helper()
	s := os.Getenv("SUBSTORM_TEST_OUTAGE")
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// program is the gateway, built once with buildFlags.
var (
	program    string
	buildFlags []string
)

func TestMain(m *testing.M) {
	// The tests wait for most of their time.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ingest-gateway-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "ingest-gateway")
	build := exec.Command("go", append(append([]string{"build"}, buildFlags...), "-o", program, "./cmd")...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the gateway:", err)
		return 1
	}
	return m.Run()
}

// await waits until something is so.
func await(t *testing.T, what string, is func() (bool, string)) {
	t.Helper()
	said := ""
	for range testenv.Attempts() {
		var ok bool
		if ok, said = is(); ok {
			return
		}
	}
	t.Fatalf("not within %v: %s; last: %s", patience, what, said)
}

// awaitAll is await of what takes longer the more there is: it gives up when for that long nothing more is done.
func awaitAll(t *testing.T, what string, is func() (ok bool, done int, said string)) {
	t.Helper()
	for most := 0; ; {
		ok, done := false, 0
		await(t, what, func() (_ bool, said string) {
			ok, done, said = is()
			return ok || done > most, said
		})
		if ok {
			return
		}
		most = done
	}
}
