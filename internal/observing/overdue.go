// SPDX-License-Identifier: Apache-2.0

package observing

import (
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Silence is how long all gateways may be silent before it is unknown whether data arrives: three missed reports, and a grace period.
const Silence = 3*wire.GatewayReportInterval + 15*time.Second

// Due is how long after the last data of an instrument the next is overdue.
func Due(cadence time.Duration) time.Duration { return 2*cadence + 2*time.Second }

// Rests says whether no data is due at an instant: the schedule says so, or did until less
// ago than Due, and what came before that is overdue from an earlier instant on.
func (s Schedule) Rests(now, overdueFrom time.Time, due time.Duration) bool {
	if s.Always() {
		return false
	}
	begins := !s.At(now.Add(-due)) && now.After(overdueFrom)
	return !s.At(now) || begins
}
