// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
)

// A version replaces the earlier one at the partner also where it has its size and second of receipt, whatever is verified.
func TestReplacesSameSizeAndSecond(t *testing.T) {
	t.Parallel()
	for kind, to := range movers {
		for _, verify := range []string{wire.MirrorVerifySize, wire.MirrorVerifyNone} {
			t.Run(kind+" "+verify, func(t *testing.T) {
				t.Parallel()
				l := newLab(t)
				to(l)
				l.entry.Verify = verify
				one := l.Put(archivetest.Camera, "c.txt", "c2aa", named("c.txt"), at(storm.Add(100*time.Millisecond)))
				l.Wait(one)
				l.push(1)
				two := l.Put(archivetest.Camera, "c.txt", "c2bb", named("c.txt"), at(storm.Add(200*time.Millisecond)), newer(2, one))
				l.Wait(two)
				l.push(1)
				l.want("the current version", map[string]string{"allsky-1/c.txt": "c2bb"})
			})
		}
	}
}
