// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"crypto/sha256"
	"io"
	"slices"
	"strconv"
	"sync"

	"github.com/substorm/substorm/internal/tree"
	"github.com/substorm/substorm/internal/wire"
)

// sum is what is known of some objects of a run without them.
type sum struct {
	objects int
	size    int64
	// digest tells them from others, and their order among those of other instruments.
	digest wire.Digest
}

// sumOf puts objects in order, and sums them up.
func sumOf(objects []*wire.Record) sum {
	slices.SortFunc(objects, received)
	s := sum{objects: len(objects)}
	h := sha256.New()
	for _, o := range objects {
		head, tail := tree.Framed(*o)
		s.size += int64(len(head)) + o.Size + int64(len(tail))
		_, _ = h.Write(o.Digest[:])
		_, _ = io.WriteString(h, o.Framing+"\n"+strconv.FormatInt(o.ReceivedAt.UnixNano(), 36)+" "+o.ID+"\n")
	}
	s.digest = wire.Digest(h.Sum(nil))
	return s
}

// knownSums bounds the sums that are remembered; each takes some 200 bytes.
const knownSums = 4096

// sums are those of days that were read, by instrument and what was asked for.
type sums struct {
	mu    sync.Mutex
	known map[sumKey]knownSum
}

type sumKey struct {
	instrument string
	of         wire.Legacy
}

// knownSum is the sum of a day with a tag.
type knownSum struct {
	tag string
	sum sum
}

// of returns the sum of a day, if that is still the one with the tag.
func (s *sums) of(instrument string, l wire.Legacy, tag string) (sum, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, known := s.known[sumKey{instrument, l}]
	return k.sum, known && k.tag == tag
}

func (s *sums) remember(instrument string, l wire.Legacy, tag string, is sum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= knownSums {
		s.known = make(map[sumKey]knownSum)
	}
	s.known[sumKey{instrument, l}] = knownSum{tag, is}
}
