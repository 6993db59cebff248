// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/mirror-jobs/plan"
)

// way is one of the golden file, with what is planned for it.
type way struct {
	Name      string `json:"name"`
	RoundTrip string `json:"roundTrip,omitempty"`
	Answer    string `json:"answer,omitempty"`
	// MegabytesPerSecond is what was measured, and LimitMegabytes what is declared.
	MegabytesPerSecond int64 `json:"megabytesPerSecond,omitempty"`
	LimitMegabytes     int64 `json:"limitMegabytesPerSecond,omitempty"`
	WindowKiB          int64 `json:"windowKiB,omitempty"`
	Connections        int   `json:"connections"`
	Streams            int   `json:"streams"`
}

// TestStreams: testdata/streams.yaml has ways, and how many streams each gets.
func TestStreams(t *testing.T) {
	t.Parallel()
	const golden = "testdata/streams.yaml"
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var want []way
	if err := yaml.UnmarshalStrict(text, &want); err != nil {
		t.Fatal(err)
	}
	got := append([]way(nil), want...)
	for i := range got {
		w := &got[i]
		w.Streams = plan.Streams(plan.Way{
			RoundTrip: duration(t, w.RoundTrip), Answer: duration(t, w.Answer),
			BytesPerSecond: w.MegabytesPerSecond * 1e6, Limit: w.LimitMegabytes * 1e6, Window: w.WindowKiB << 10,
		}, w.Connections)
	}
	if *update {
		if text, err = yaml.Marshal(got); err == nil {
			err = os.WriteFile(golden, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("other streams (-want +got):\n%s", diff)
	}
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
