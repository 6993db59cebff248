// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// maxSuperseded bounds the objects that are remembered as superseded before they are listed. Two versions change places when they are
// sent within the same second or so, and a notice is at most the age of a spool late; at 200 bytes each 100 KiB.
const maxSuperseded = 512

// superseded remembers objects that a newer version has replaced and that are not listed yet. It is in the bucket of cursors before the
// cursor moves past the newer version, so that the next writer knows it too.
type superseded struct {
	cell    *stream.Cell
	metrics *Metrics
	// ids in the order in which they were noted.
	ids     []string
	changed bool
}

// load reads what a writer before left.
func (s *superseded) load(ctx context.Context, js jetstream.JetStream, cursors jetstream.KeyValue) error {
	s.cell = stream.NewCell(js, cursors, wire.SupersededKey)
	data, err := s.cell.Load(ctx)
	if err != nil || data == nil {
		return err
	}
	noted, err := wire.Decode[wire.Superseded](data)
	if err != nil && !errors.Is(err, wire.ErrMalformed) { // otherwise they are lost, and those that come are listed as current
		return fmt.Errorf("%s of %s: %w", wire.SupersededKey, cursors.Bucket(), err)
	}
	s.ids = noted.IDs
	return nil
}

// note remembers an object.
func (s *superseded) note(id string) {
	if slices.Contains(s.ids, id) {
		return
	}
	s.ids, s.changed = append(s.ids, id), true
	for len(s.ids) > maxSuperseded {
		s.ids = s.ids[1:]
		s.metrics.supersededForgotten.Inc()
	}
}

// has says whether an object was superseded before it was listed.
func (s *superseded) has(id string) bool { return len(s.ids) > 0 && slices.Contains(s.ids, id) }

// forgetListed forgets an object that is listed.
func (s *superseded) forgetListed(id string) {
	if i := slices.Index(s.ids, id); i >= 0 {
		s.ids, s.changed = slices.Delete(s.ids, i, i+1), true
	}
}

// save writes what changed, once the parts are closed that list it.
func (s *superseded) save(ctx context.Context) error {
	if !s.changed {
		return nil
	}
	value, err := wire.Encode(wire.Superseded{IDs: s.ids})
	if err != nil {
		return err
	}
	if err := s.cell.Store(ctx, value); err != nil {
		return err
	}
	s.changed = false
	return nil
}
