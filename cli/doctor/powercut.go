// SPDX-License-Identifier: Apache-2.0

//go:build linux

package doctor

import (
	"fmt"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// powerCut says what a power cut would lose of what was receipted, going by what is known of the disk. Nothing else can show it but to cut
// the power; but a receipt is sent after the disk said that it has the data, so all depends on whether it said the truth.
func powerCut(dir string, d disk, site declared) Check {
	const check = "power cut"
	switch {
	case d.err != nil:
		return warning(check, "see space", "what would be lost is not known")
	case d.kind == inMemory:
		return failed(check, "name a data folder on a disk with --data-dir", "everything in %s would be lost: it is in memory (%s)", dir, d.name)
	case d.unsafe != "" || d.unmeasured == nil && d.speed.median() < tooFast:
		return warning(check, "see sync", "what was receipted in the last seconds may be lost: %s says that it kept what it may not have", d.name)
	case d.kind == elsewhere:
		return warning(check, "put the data folder on a disk of this computer",
			"nothing that was receipted would be lost, if %s keeps what it says it synced: that is not decided on this computer", d.name)
	case d.unmeasured != nil:
		return warning(check, "see sync", "what would be lost is not known: the disk was not measured")
	}
	found := fmt.Sprintf("nothing that was receipted would be lost: a receipt is sent after the sync, which took %s on %s", short(d.speed.median()), d.name)
	if site.receivesDatagrams() {
		found += "; datagrams have no receipts, and those of the last moment would be lost"
	}
	return fine(check, "%s; what has no receipt yet is sent again by its sender", found)
}

func (d *declared) receivesDatagrams() bool {
	for i := range d.instruments {
		for _, l := range d.instruments[i].Spec.Listeners {
			if l.Protocol == v1alpha1.ListenerUDP {
				return true
			}
		}
	}
	return false
}
