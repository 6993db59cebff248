// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestReruns: one test that passes when it is run again is printed with the logs of both runs and the load; two fail. A test that fails again,
// one that passes at once and one that is skipped are not printed: gotestsum says what fails.
func TestReruns(t *testing.T) {
	for files, want := range map[string]struct {
		fails bool
		says  []string
		not   []string
	}{
		"testdata/one.json": {false, []string{"example.org/p TestB failed", "run 1: fail; load 4.00 3.00 2.00", "b_test.go:7: too late", "sub: 3 of 4", "run 2: pass; load 0.50 1.00 1.50", "second run of B"},
			[]string{"TestA", "TestC", "TestD"}},
		"testdata/one.json testdata/another.json": {true, []string{"example.org/p TestB failed", "example.org/q TestE failed"}, nil},
	} {
		var out strings.Builder
		err := run(&out, "testdata/load.txt", 1, strings.Fields(files))
		if (err != nil) != want.fails {
			t.Errorf("%s: %v", files, err)
		}
		for _, text := range want.says {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%s: %q is not in\n%s", files, text, &out)
			}
		}
		for _, text := range want.not {
			if strings.Contains(out.String(), text) {
				t.Errorf("%s: %q is in\n%s", files, text, &out)
			}
		}
	}
	if err := run(&strings.Builder{}, "", 1, []string{"testdata/away.json"}); err == nil {
		t.Error("a file that is away is no error")
	}
}
