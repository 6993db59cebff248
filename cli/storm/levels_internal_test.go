// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/surge"
	"github.com/substorm/substorm/operator/surge/simulate"
)

// TestDefaultHold: a Site that does not say how long its levels are held has the hold that storm-2015 was measured with, by the CRD's default
// and by the operator's.
func TestDefaultHold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "site.yaml")
	site := `{apiVersion: substorm.dev/v1alpha1, kind: Site, metadata: {name: hub}, spec: {surge: {levels: [
  {name: storm, anyOf: [{allOf: [{quantity: Kp, atLeast: "5"}]}], floors: [{kind: FeedServer, replicas: 6}]}]}}}`
	if err := os.WriteFile(file, []byte(site), 0o600); err != nil {
		t.Fatal(err)
	}
	levels, err := levelsOf(t.Context(), []string{file}, "")
	if err != nil {
		t.Fatal(err)
	}
	measured := simulate.DefaultLevels()[0].Hold
	if levels[0].Hold != measured || v1alpha1.DefaultSurgeHold != measured {
		t.Errorf("held for %s by the CRD, %s by the operator, and %s in storm-2015", levels[0].Hold, v1alpha1.DefaultSurgeHold, measured)
	}
}

// TestPauses: how long Kp was below 5 within the storms of March 2015, as docs/explanation/space-weather.md says.
func TestPauses(t *testing.T) {
	const file = "../../operator/surge/simulate/testdata/kp-2015-03.csv"
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	recorded, err := simulate.Read(file, f)
	if err != nil {
		t.Fatal(err)
	}
	var pauses []time.Duration
	var last time.Time
	for _, one := range recorded[surge.Kp] {
		if one.Value < 5 {
			continue
		}
		if pause := one.From.Sub(last); pause > 0 && pause < 24*time.Hour {
			pauses = append(pauses, pause)
		}
		last = one.To
	}
	if want := []time.Duration{21 * time.Hour, 9 * time.Hour, 15 * time.Hour}; !slices.Equal(pauses, want) {
		t.Errorf("pauses of %s", pauses)
	}
}
