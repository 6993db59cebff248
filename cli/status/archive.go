// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"io"

	"github.com/substorm/substorm/cli/damage"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// known is what a Site's status says of damage to its archive; nil where it says nothing.
func known(s *v1alpha1.ArchiveState) *damage.Known {
	if s == nil {
		return nil
	}
	return &damage.Known{Confirmed: int(s.Damaged), Missing: int(s.Missing), Unconfirmed: int(s.Unconfirmed), LastPass: pass(s.LastPass), Pass: pass(s.Pass)}
}

func pass(p *v1alpha1.ArchivePass) *wire.ScrubPass {
	if p == nil {
		return nil
	}
	is := &wire.ScrubPass{BegunAt: p.BegunAt.Time, Instrument: p.Instrument, Day: wire.Day(p.Day), Objects: uint64(p.Objects), Unreadable: uint64(p.Unreadable)}
	if p.EndedAt != nil {
		is.EndedAt = &p.EndedAt.Time
	}
	return is
}

// printArchives says of each Site's archive what is known of damage, and when somebody
// last looked.
func (r Report) printArchives(w io.Writer) {
	for _, s := range r.Sites {
		says := "no archivist has reported yet that it reads it"
		if s.Archive != nil {
			says = s.Archive.String()
		}
		fmt.Fprintf(w, "Archive of site %s: %s.\n", r.name(s.Namespace, s.Name), says)
	}
}
