// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"io"
)

// printPullers prints the readers that Sites wait for, and what each has.
func (r Report) printPullers(w io.Writer) {
	heading := "PULLED BY\tSITE\tCONFIRMED\tVERIFIED TO\tCOMPARED\tOWED"
	for _, s := range r.Sites {
		for _, p := range s.PulledBy {
			if heading != "" {
				fmt.Fprintln(w, heading)
				heading = ""
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", p.Reader, r.name(s.Namespace, s.Name), minute(p.ConfirmedTime), minute(p.VerifiedToTime), minute(p.ComparedTime), owedCount(p.OwedObjectCount))
		}
	}
}

func owedCount(objects *int64) string {
	switch {
	case objects == nil:
		return "-"
	case *objects == 0:
		return "nothing"
	default:
		return fmt.Sprintf("%d objects", *objects)
	}
}
