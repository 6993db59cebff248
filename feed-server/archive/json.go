// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bufio"
	"encoding/json"

	"github.com/substorm/substorm/feed-server/endpoint"
)

// listedHead is how a directory as JSON begins; its directories and objects follow.
type listedHead struct {
	Format     int    `json:"format"`
	Site       string `json:"site"`
	Instrument string `json:"instrument,omitempty"`
	// Origin is the code of the Site that the instrument is of; absent: of this one.
	Origin string `json:"origin,omitempty"`
	// Directory is its path, with a slash at the end; absent: all of the instrument's.
	Directory string `json:"directory,omitempty"`
	Rights    any    `json:"rights,omitempty"`
}

// listedFolder is a sub-directory. Objects is absent where it is not known.
type listedFolder struct {
	Name    string `json:"name"`
	Objects *int64 `json:"objects,omitempty"`
}

// listedObject is an object of a directory in JSON.
type listedObject struct {
	Name string `json:"name"`
	endpoint.Facts
}

// listingFormat is the version of the listing.
const listingFormat = 1

// writeJSON writes the directory for programs, an object a line.
func (p *page) writeJSON(w *bufio.Writer) error {
	head := listedHead{Format: listingFormat, Site: p.site, Instrument: p.target.instrument}
	if p.target.path != "" {
		head.Directory = p.target.path + "/"
	}
	if p.instrument != nil {
		head.Origin = p.instrument.Origin
	}
	if p.instrument != nil && p.instrument.Rights != nil {
		head.Rights = p.instrument.Rights
	}
	text := marshal(head)
	_, _ = w.Write(text[:len(text)-1]) // it is open
	fprint(w, `,"directories":[`)
	between := "\n"
	for _, f := range p.folders {
		l := listedFolder{Name: f.Name}
		if f.Objects >= 0 {
			l.Objects = &f.Objects
		}
		fprint(w, between)
		_, _ = w.Write(marshal(l))
		between = ",\n"
	}
	fprint(w, `],"objects":[`)
	between = "\n"
	for o, err := range p.objects {
		if err != nil {
			return err
		}
		fprint(w, between)
		_, _ = w.Write(marshal(listedObject{o.Name, endpoint.FactsOf(o.Record)}))
		between = ",\n"
	}
	fprint(w, "]}\n")
	return nil
}

// marshal writes what can always be written: text, numbers and times.
func marshal(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}
