// SPDX-License-Identifier: Apache-2.0

package wire

import "maps"

// An object is listed, and was never counted as received, where its gateway was killed or had
// to give up between the two: the sender has no receipt then, and the gateway counts the object
// as unfinished. Reconcile makes the columns agree on such objects; that the archive has them is
// no loss. It leaves every other difference as it is.

// Reconcile returns the sum of what the incarnations received of an instrument's day, given what
// the manifests list of each of them (see LedgerEntry):
//
//   - If an incarnation counted fewer objects than are listed, its unfinished objects are those
//     that are missing. If its counters were lost, the listed objects count as received.
//   - Resolved objects that are listed after all, as out of a copy, are no longer resolved.
//   - If no incarnation counted some of the datagrams in segments (or in none, by cause: stored),
//     the unknown ones are those that are missing. If no gateway counted anything at all, as
//     after a power cut, the stored datagrams count as received.
func Reconcile(received, announced map[string]Totals, stored Totals) Totals {
	var sum, listed Totals
	sum.Incomplete = len(received) == 0
	for incarnation, a := range announced {
		listed = listed.Plus(a)
		if _, known := received[incarnation]; !known {
			sum = sum.Plus(Totals{Objects: a.Objects, ObjectBytes: a.ObjectBytes, Digest: a.Digest, Incomplete: true})
		}
	}
	for incarnation, r := range received {
		sum = sum.Plus(completed(r, announced[incarnation]))
	}
	return withDatagrams(withFound(sum, listed), stored)
}

// completed returns what an incarnation received, completed by what the manifests list of it, a.
func completed(r, a Totals) Totals {
	if a.Objects <= r.Objects {
		return r
	}
	r.Unfinished = maps.Clone(r.Unfinished)
	missing := a.Objects - r.Objects
	found := take(r.Unfinished, missing, undecidedCauses)
	if found < missing && !r.Incomplete {
		r.Objects += found
		return r
	}
	r.Objects, r.ObjectBytes, r.Digest = a.Objects, a.ObjectBytes, a.Digest
	return r
}

// undecidedCauses are those of objects that may have been stored, or announced, without their
// gateway knowing; lostCauses those of objects that were received into a spool and lost.
var (
	undecidedCauses = []Cause{CauseKilled, CauseStreamUnavailable, CauseStoreUnavailable, CauseDraining}
	lostCauses      = []Cause{CauseSpoolAbandoned, CauseCorrupt}
)

// withFound returns sums without the resolved objects that are listed after all.
func withFound(sum, listed Totals) Totals {
	waited := sum.Objects - min(sum.Objects, sum.Resolved)
	if listed.Objects <= waited || sum.Resolved == 0 {
		return sum
	}
	found := min(listed.Objects-waited, sum.Resolved)
	sum.Unfinished = maps.Clone(sum.Unfinished)
	take(sum.Unfinished, found, lostCauses)
	if sum.Resolved -= found; sum.Resolved == 0 {
		sum.ResolvedBytes = 0
	}
	sum.ObjectBytes, sum.Digest = listed.ObjectBytes+sum.ResolvedBytes, listed.Digest
	return sum
}

// withDatagrams returns sums that count as received what of the unknown datagrams is stored.
func withDatagrams(sum, stored Totals) Totals {
	there := stored.Datagrams
	for _, n := range stored.Dropped {
		there += n
	}
	if there <= sum.Datagrams {
		return sum
	}
	missing := there - sum.Datagrams
	found := min(missing, sum.Unknown)
	sum.Unknown -= found
	if found < missing && !sum.Incomplete {
		sum.Datagrams += found
		return sum
	}
	sum.Datagrams = there
	if len(stored.Dropped) == 0 {
		sum.DatagramBytes = stored.DatagramBytes
	}
	return sum
}

// take takes up to n from the counts of causes, in their order, and returns how many it took.
func take(counts map[Cause]uint64, n uint64, causes []Cause) (taken uint64) {
	for _, cause := range causes {
		of := min(n-taken, counts[cause])
		if of == 0 {
			continue
		}
		taken += of
		if counts[cause] -= of; counts[cause] == 0 {
			delete(counts, cause)
		}
	}
	return taken
}
