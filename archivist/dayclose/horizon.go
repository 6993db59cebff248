// SPDX-License-Identifier: Apache-2.0

package dayclose

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// horizon returns the instant up to which days may be closed: nothing that was received before it
// waits in a spool, as far as is known. Waits says what keeps it from being later, if it is not
// time alone.
func (c *Closer) horizon(ctx context.Context, now time.Time) (settled time.Time, waits string, err error) {
	var reports []wire.GatewayStatus
	unread := ""
	err = stream.EntriesOf(ctx, c.cfg.JetStream, wire.StatusBucket(c.cfg.Site), wire.GatewayStatusKey("*"), func(e jetstream.KeyValueEntry) error {
		report, err := wire.Decode[wire.GatewayStatus](e.Value())
		if err != nil {
			unread = fmt.Sprintf("the report %s cannot be read: %v", e.Key(), err)
			return nil
		}
		reports = append(reports, report)
		return nil
	})
	if err != nil || unread != "" {
		return settled, unread, err
	}
	at, why := Horizon(now, reports)
	c.spools.Store(&spools{at, why})
	settled, waits = Horizon(now.Add(-c.cfg.After), reports)
	return settled, waits, nil
}

// spools says before which instant nothing was received that still waits in a spool, and
// what waits there.
type spools struct {
	settled time.Time
	waits   string
}

// Spooled says why a spool may hold something that was received on a day, or before; empty if none
// does. It may be asked from any goroutine.
func (c *Closer) Spooled(day wire.Day) string {
	s := c.spools.Load()
	if s == nil {
		return "the gateways were not asked yet what waits in their spools"
	}
	start, err := day.Start()
	switch {
	case err != nil:
		return err.Error()
	case start.AddDate(0, 0, 1).After(s.settled):
		return cmp.Or(s.waits, "the day is not over")
	}
	return ""
}

// Horizon returns the instant, latest or earlier, before which nothing was received that still
// waits in a spool, and if it is earlier, what waits there.
//
// A pod that is gone without a final report may have received more after its last report,
// and into its spool: until it comes back, or is given up, it holds up the days since.
func Horizon(latest time.Time, reports []wire.GatewayStatus) (settled time.Time, waits string) {
	settled = latest
	earlier := func(at time.Time, format string, args ...any) {
		if at.Before(settled) {
			settled, waits = at, fmt.Sprintf(format, args...)
		}
	}
	for _, r := range reports {
		if s := r.Spool; s != nil && s.Objects > 0 {
			var oldest time.Time // it cannot say: nothing is known to be settled
			if s.Oldest != nil {
				oldest = *s.Oldest
			}
			earlier(oldest, "gateway %s holds %d objects in its spool, the oldest received %s", r.Gateway, s.Objects, wire.FormatTime(oldest))
		}
		for _, copies := range r.Copies {
			if copies.Objects > 0 && copies.Oldest != nil {
				earlier(*copies.Oldest, "gateway %s holds copies of %d objects that wait in the spool of %s, the oldest received %s",
					r.Gateway, copies.Objects, copies.Owner, wire.FormatTime(*copies.Oldest))
			}
		}
		if !r.Stopped {
			earlier(r.ReportedAt, "gateway %s has not reported since %s, and the content of its spool is unknown: bring it back, or give it up (substorm spool abandon)",
				r.Gateway, wire.FormatTime(r.ReportedAt.Truncate(time.Second)))
		}
	}
	return settled, waits
}
