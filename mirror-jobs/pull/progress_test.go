// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/pull"
)

// The bytes of a large object count while its parts come.
func TestProgress(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	large := strings.Repeat("0123456789abcdef", 20<<20/16)
	l.Wait(l.Put(archivetest.Camera, "large.fits", large, at(storm)))
	var within atomic.Int64
	l.seen = func(f pull.Figures) {
		if f.Objects == 0 && f.Bytes < int64(len(large)) && f.Bytes%folder.PartSize != 0 {
			within.Add(1)
		}
	}
	l.pull()
	if within.Load() == 0 || l.last.Bytes != int64(len(large)) || l.last.OwedBytes != l.last.Bytes {
		t.Errorf("it was seen within parts %d times; %+v", within.Load(), l.last)
	}
}
