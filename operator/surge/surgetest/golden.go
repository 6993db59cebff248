// SPDX-License-Identifier: Apache-2.0

// Package surgetest runs the golden tests of surge and of the packages below it.
package surgetest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the .out.yaml files anew")

// Golden reads each testdata/<name>.in.yaml as a T, and compares the result of tell with testdata/<name>.out.yaml.
func Golden[T any](t *testing.T, tell func(*testing.T, *T) any) {
	inputs, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no inputs: %v", err)
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".in.yaml")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(input)
			in := new(T)
			if err == nil {
				err = yaml.UnmarshalStrict(data, in)
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(tell(t, in))
			if err != nil {
				t.Fatal(err)
			}
			compare(t, filepath.Join("testdata", name+".out.yaml"), got)
		})
	}
}

func compare(t *testing.T, output string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(output, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got); `make golden` writes it anew:\n%s", output, diff)
	}
}
