// SPDX-License-Identifier: Apache-2.0

package store

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// shapes of an object, as the decision distinguishes them.
var shapes = []struct {
	name string
	facts
}{
	{"small", facts{size: 1000, inMemory: true}},
	{"small in scratch", facts{size: 1000}},
	{"larger", facts{size: 100_000, inMemory: true}},
	{"named", facts{size: 1000, inMemory: true, named: true}},
	{"parts in the store", facts{size: 20 << 20, sent: inParts}},
	{"parts in the spool", facts{size: 20 << 20, sent: inSpool}},
}

// Every acknowledge, with each shape and whatever is away: where the object goes first,
// otherwise and at last, and how JetStream is asked for its name and to take its notice.
func TestDecide(t *testing.T) {
	var got strings.Builder
	table := tabwriter.NewWriter(&got, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "acknowledge\tspool\tpeer\tobject\tplace\twith the store away\tclaim, notice\twith JetStream away")
	for _, of := range []facts{
		{acknowledge: "Stored", hasSpool: true, hasPeer: true},
		{acknowledge: storedOrSpooled}, {acknowledge: storedOrSpooled, hasSpool: true},
		{acknowledge: spooledOnly}, {acknowledge: spooledOnly, hasSpool: true},
		{acknowledge: replicated, hasPeer: true}, {acknowledge: replicated, hasSpool: true}, {acknowledge: replicated, hasSpool: true, hasPeer: true},
	} {
		for _, shape := range shapes {
			f := shape.facts
			f.acknowledge, f.packBelow, f.hasSpool, f.hasPeer = of.acknowledge, 64<<10, of.hasSpool, of.hasPeer
			fmt.Fprintf(table, "%s\t%t\t%t\t%s", f.acknowledge, f.hasSpool, f.hasPeer, shape.name)
			here := decide(f)
			f.storeAway = true
			fmt.Fprintf(table, "\t%s\t%s", here.places(), decide(f).places())
			f.storeAway, f.streamAway = false, true
			away := decide(f)
			fmt.Fprintf(table, "\t%s, %s\t%s, %s\n", here.claim, here.notice, away.claim, away.notice)
			if away.places() != here.places() {
				t.Errorf("%+v: with JetStream away %+v, else %+v", f, away, here)
			}
		}
	}
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/places.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s differs (-want +got); `make golden` writes it anew:\n%s", golden, diff)
	}
}

// places returns where the object goes, in the order of the tries.
func (d decision) places() string {
	all := []string{string(d.place)}
	for _, p := range []place{d.otherwise, d.atLast} {
		if p != nowhere && p != place(all[len(all)-1]) {
			all = append(all, string(p))
		}
	}
	return strings.Join(all, ", ")
}

// The promises of a receipt hold whatever is away: with Stored nothing goes to the spool,
// with Replicated nothing goes there without a copy, and nothing moves that is in parts.
func TestDecideKeepsPromises(t *testing.T) {
	for _, acknowledge := range []string{"", "Stored", storedOrSpooled, spooledOnly, replicated} {
		for bits := range 1 << 4 {
			for _, shape := range shapes {
				f := shape.facts
				f.acknowledge, f.packBelow = acknowledge, 64<<10
				f.hasSpool, f.hasPeer, f.storeAway, f.streamAway = bits&1 != 0, bits&2 != 0, bits&4 != 0, bits&8 != 0
				d := decide(f)
				for _, p := range []place{d.place, d.otherwise, d.atLast} {
					switch {
					case p.isSpool() && f.sent != inSpool && (!f.hasSpool || acknowledge == "" || acknowledge == "Stored"),
						p == inSpool && acknowledge == replicated,
						p.isSpool() && f.sent == inParts,
						d.place != inParts && f.sent == inParts,
						!d.place.isSpool() && f.sent == inSpool:
						t.Errorf("%+v: %+v", f, d)
					}
				}
				if d.notice != patiently && !f.hasSpool {
					t.Errorf("%+v: %+v", f, d)
				}
			}
		}
	}
}
