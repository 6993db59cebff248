// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"crypto/sha256"
	"io"
	"slices"
	"strconv"

	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/wire"
)

// sum is what is known of some objects of a run without them.
type sum struct {
	objects int
	size    int64
	// digest distinguishes them, and their order, among the objects of other instruments.
	digest wire.Digest
}

// sumOf puts objects in order, and sums them up.
func sumOf(objects []*wire.Record) sum {
	slices.SortFunc(objects, wire.ByReceipt)
	s := sum{objects: len(objects)}
	h := sha256.New()
	for _, o := range objects {
		head, tail := objectpath.Framed(*o)
		s.size += int64(len(head)) + o.Size + int64(len(tail))
		_, _ = h.Write(o.Digest[:])
		_, _ = io.WriteString(h, o.Framing+"\n"+strconv.FormatInt(o.ReceivedAt.UnixNano(), 36)+" "+o.ID+"\n")
	}
	s.digest = wire.Digest(h.Sum(nil))
	return s
}

// sumKey is whose sum of what.
type sumKey struct {
	instrument string
	of         wire.Legacy
}
