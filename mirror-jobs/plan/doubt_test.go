// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/substorm/substorm/mirror-jobs/plan"
)

func TestDoubtful(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		compared, differing int
		want                bool
	}{
		{0, 0, false}, {1, 0, false}, {1, 1, true}, {2, 1, true}, {3, 1, false}, {3, 2, true}, {50, 3, false}, {50, 4, true}, {10_000, 100, false}, {10_000, 101, true},
	} {
		if got := plan.Doubtful(c.compared, c.differing); got != c.want {
			t.Errorf("%d of %d differ: %v, want %v", c.differing, c.compared, got, c.want)
		}
	}
}
