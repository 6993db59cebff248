// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

func addRetracted(f *pflag.FlagSet, retracted *bool) {
	f.BoolVar(retracted, "retracted", false, "also give what was retracted")
}

// standing resolves a name to an object as its manifest has it now, for its metadata
// does not know what became of it; as it is where it is not listed yet. What was
// retracted is refused unless it is asked for. Errors: those of the manifests.
func standing(ctx context.Context, b *backend.Backend, store objectstore.Store, name string, s *selection, retracted bool) (wire.Notice, error) {
	n, err := resolve(ctx, b, store, name, s)
	if err != nil {
		return wire.Notice{}, err
	}
	day := wire.DayOf(n.ReceivedAt)
	for r, err := range manifest.Records(ctx, store, n.Site, n.Instrument, day) {
		if err != nil {
			return wire.Notice{}, fmt.Errorf("what became of %s is not known: instrument %s, %s: %w", n.ID, n.Instrument, day, err)
		}
		if r.ID == n.ID {
			n.Record = r
			break
		}
	}
	switch {
	case n.State == wire.StatePurged:
		return wire.Notice{}, fmt.Errorf("%s was purged%s: its bytes are gone", n.ID, because(n.Record))
	case n.State == wire.StateRetracted && !retracted:
		return wire.Notice{}, fmt.Errorf("%s was retracted%s: its bytes are kept, --retracted gives them", n.ID, because(n.Record))
	}
	return n, nil
}

// because says when and why an object was taken back, as far as that is known.
func because(r wire.Record) string {
	text := ""
	if r.RetractedAt != nil {
		text = " at " + wire.FormatTime(*r.RetractedAt)
	}
	if r.Reason != "" {
		text += fmt.Sprintf(" (%s)", r.Reason)
	}
	return text
}
