// SPDX-License-Identifier: Apache-2.0

package https

import (
	"testing"
	"time"
)

// An answer at the least rate, or one that pauses and then makes up for it, keeps its credit; a slower one spends it.
func TestPatience(t *testing.T) {
	t.Parallel()
	p := Patience{}.orDefault()
	type read struct {
		waited time.Duration
		came   int
	}
	for name, c := range map[string]struct {
		reads []read
		times int
		spent bool
	}{
		"the least rate":        {[]read{{time.Second, 1 << 10}}, 1000, false},
		"half of it":            {[]read{{2 * time.Second, 1 << 10}}, 1000, true},
		"a byte a minute":       {[]read{{time.Minute, 1}}, 6, true},
		"pauses of 50 seconds":  {[]read{{50 * time.Second, 16 << 10}, {time.Second, 64 << 10}}, 1000, false},
		"a little, after a lot": {[]read{{time.Second, 1 << 30}, {6 * time.Minute, 1}}, 1, true},
	} {
		left, spent := p.Credit, false
		for range c.times {
			for _, r := range c.reads {
				left = p.left(left, r.waited, r.came)
				spent = spent || left <= 0
			}
		}
		if spent != c.spent {
			t.Errorf("%s: spent is %t, %s are left", name, spent, left)
		}
	}
}
