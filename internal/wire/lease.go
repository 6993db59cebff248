// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"time"
)

// ArchivistLease is the key of the lease whose holder alone writes manifests,
// cuts segments and sweeps.
const ArchivistLease = "archivist"

// ImportLease is the key of the lease whose holder alone imports trees for an
// instrument and writes the ledger's columns of ImportWriter.
func ImportLease(instrument string) string { return "import." + instrument }

// LeaseTTL is when a lease expires unless it is renewed; its holder renews it every third of that.
const LeaseTTL = 10 * time.Second

// Lease says who holds a lease.
type Lease struct {
	Holder      string    `json:"holder"`
	Incarnation string    `json:"incarnation"`
	Since       time.Time `json:"since"`
}
