// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/kvbucket"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// root answers with the instruments that the client may read, and their tags.
func (x *Index) root(v *endpoint.Request) *problem.Problem {
	if p := v.Ready(); p != nil {
		return p
	}
	tags, err := x.cfg.Catalog.InstrumentTags(v.Context())
	if err != nil {
		return v.Unreadable("the mirror index", err)
	}
	root := mirrorindex.Root{Format: mirrorindex.Format, Site: x.cfg.Site, Now: v.Now.UTC(), Bundles: x.cfg.Bundles(v),
		Reader: v.Reader.String(), Confirms: puller(v) != nil, Instruments: []mirrorindex.RootLine{}}
	if root.Confirms {
		if root.Ledger, _, err = stream.Epoch(v.Context(), x.cfg.JetStream, kvbucket.StreamName(wire.LedgerBucket(x.cfg.Site))); err != nil {
			return v.Unreadable("the mirror index", err)
		}
	}
	source := []string{root.Site, v.Reader.String(), strconv.Itoa(root.Bundles), strconv.FormatBool(root.Confirms), root.Ledger}
	for _, name := range offered(v) {
		if tag, holds := tags[name]; holds {
			line := mirrorindex.RootLine{Instrument: name, Tag: tagOf(v, v.Snapshot.Instruments[name], tag)}
			root.Instruments = append(root.Instruments, line)
			source = append(source, line.Instrument, line.Tag)
		}
	}
	return v.Serve(mirrorindex.RootPath, endpoint.Document{
		MediaType: "application/json", Cache: "private, no-cache", Vary: "Authorization", Source: source,
		Write: func(w *bufio.Writer) error { return json.NewEncoder(w).Encode(root) },
	})
}

// tagOf is a tag of what the archive holds of an instrument, of all or of a day, with what else an
// answer to the client depends on.
func tagOf(v *endpoint.Request, in wire.InstrumentEntry, of string) string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%d %s %s %d\n", mirrorindex.Format, v.ArchiveTag(in, of), in.UID, in.Generation)
	return hex.EncodeToString(h.Sum(nil)[:12])
}
