// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// An archive lists what it had for ever. If it does not list objects any more that are here, it was installed again under its
// code, or restored from an older backup: they stay, and each run that looks at their days says so. If an Instrument has an
// embargo, objects under it are not listed.

// unlistedDay counts the objects of a day that is listed without them.
func (p *run) unlistedDay(d *day) {
	if d.in.embargoed {
		return
	}
	p.unlist(d.in.Instrument, d.day, int64(d.in.Unlisted(d.lines)))
}

// unlistedDays counts the objects of days that are not listed. Month is the one that was asked for; empty: all.
func (p *run) unlistedDays(in *instrument, lines []mirrorindex.DaysLine, month string) {
	if in.embargoed {
		return
	}
	in.mu.Lock()
	unlisted := plan.UnlistedDays(lines, in.known, month)
	in.mu.Unlock()
	for day, known := range unlisted {
		p.unlist(in.Instrument, day, int64(known.Objects))
	}
}

func (p *run) unlist(instrument string, day wire.Day, objects int64) {
	if objects == 0 {
		return
	}
	p.Progress.unlisted.Add(objects)
	p.Logger.Warn("the other side no longer lists objects that are here, or lists other bytes in their place: it was installed again, or restored from an older backup. They stay here",
		"instrument", instrument, "day", day, "objects", objects)
}

// reverted says of a day that retractions and purges stand here which the other side does not list any more.
func (p *run) reverted(d *day, kept int) {
	if kept == 0 {
		return
	}
	p.Progress.kept.Add(int64(kept))
	p.Logger.Warn("the other side no longer lists retractions or purges that it had listed, and the objects were not restored there: it was restored from an older backup. "+
		"They stand here, also with --force, and one run with --retractions Ignore fetches the objects again",
		"instrument", d.in.Instrument, "day", d.day, "objects", kept)
}
