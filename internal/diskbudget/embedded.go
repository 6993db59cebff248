// SPDX-License-Identifier: Apache-2.0

package diskbudget

import (
	"errors"
	"sync/atomic"
)

// ErrUsedUp: the disk budget of the Site is used up, and nothing is received.
var ErrUsedUp = errors.New("the disk budget of this Site is used up: raise --disk-budget of substorm up, or have less kept (spec.archive.expiry)")

var embedded atomic.Pointer[Budget]

// Embed names the budget of this process; nil: none. A process has one data folder, and programs in it are configured by flags: so it is
// named here, as stream.Embed names the NATS server.
func Embed(b *Budget) { embedded.Store(b) }

// Embedded is the budget of this process; nil, which has no end, where it has none.
func Embedded() *Budget { return embedded.Load() }
