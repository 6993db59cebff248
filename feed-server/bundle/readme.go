// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"fmt"
	"time"

	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/wire"
)

// readme says what the bundle is, and under what terms it may be used.
func (s *sending) readme() []byte {
	var b bytes.Buffer
	q := &s.todo.question
	fmt.Fprintf(&b, "Objects of the archive of %s, %s.\n", s.cfg.Site, q.text())
	if q.again {
		b.WriteString("Only what changed since an earlier bundle: unpack it over that one.\n")
	}
	fmt.Fprintf(&b, `
<instrument>/<path>              an object, under the path that the archive publishes it under
%[1]s<instrument>/<day>.jsonl  a line for each object of a day (of receipt, UTC): size, SHA-256, times, media type.
                                 It is whole in each bundle that has anything of the day, and takes the place of an earlier one.
                                 A line with a "state" is not in the bundle. "Retracted", "Purged": delete yours. "Expired": the
                                 archive keeps it no longer, and yours may stay. "damaged": it is not in the bundle, since its bytes are not those that were received;
                                 a later one has it once they are
%[1]send.json              how many objects and bytes there are. A bundle without this file, its last, is not whole.
                                 Its "since" asks for what changed afterwards: the same URL with &since=
To compare the objects of an instrument with their digests:
  (cd <instrument> && tail -q -n +2 ../%[1]s<instrument>/*.jsonl | jq -r 'select((.state or .damaged) | not) | .sha256 + "  " + .path' | sha256sum -c --quiet)
`, folder)
	for _, in := range q.instruments {
		fmt.Fprintf(&b, "\n%s\n", in.Instrument)
		for _, l := range rights(in) {
			if l[1] != "" {
				fmt.Fprintf(&b, "  %-9s %s\n", l[0]+":", l[1])
			}
		}
	}
	return b.Bytes()
}

// rights are what to know before the data is used.
func rights(in wire.InstrumentEntry) [][2]string {
	all := [][2]string{{"Site", in.Origin}, {"Station", in.Station}}
	if in.Rights == nil {
		return append(all, [2]string{"License", "none is said: ask before you use it"})
	}
	license := in.Rights.License
	if u := in.Rights.LicenseURL(); u != "" {
		license += " (" + u + ")"
	}
	return append(all, [2]string{"License", license}, [2]string{"DOI", in.Rights.CiteURL()}, [2]string{"Cite", in.Rights.Citation}, [2]string{"Credit", in.Rights.Credit})
}

// text is the question in words.
func (q *question) text() string {
	verb := "received"
	if q.by == catalog.ByObserved {
		verb = "observed"
	}
	when := func(t time.Time) string { return t.Format(time.RFC3339Nano) }
	switch {
	case q.from.IsZero() && q.to.IsZero():
		return "whenever " + verb
	case q.to.IsZero():
		return verb + " from " + when(q.from) + " on"
	case q.from.IsZero():
		return verb + " before " + when(q.to)
	default:
		return fmt.Sprintf("%s from %s to %s (which is not included)", verb, when(q.from), when(q.to))
	}
}
