// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bufio"
	"io"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// writeBuffer is how much is written to a client at a time.
	writeBuffer = 64 << 10
	// folder has what a bundle says of itself, below the Site's.
	folder = "bundle.d/"
	format = 1
)

// End is the last file of a bundle: one without it is not whole.
type End struct {
	Format int `json:"format"`
	// Objects and Bytes that the bundle holds. Damaged are those that it should: their
	// bytes in the store are not those that were received.
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
	Damaged int64 `json:"damaged,omitempty"`
	// Since asks, as ?since=, for what changed after this bundle. Empty: that would be
	// too long, ask for a shorter time or for fewer instruments.
	Since string `json:"since"`
}

// sending is a bundle on its way.
type sending struct {
	*Bundles
	v    *endpoint.Request
	todo plan
	tar  *tar.Writer
	end  End
	next token
	// ids: each object has its ID, since two objects may have one path: a newer version, or an object of
	// another day.
	ids bool
	// in is the instrument whose objects are being sent, as the registry says it now.
	in wire.InstrumentEntry
	// left are the objects of its that are not in the bundle though the token counts
	// them, and leftOut how many there are of all instruments.
	left    lacks
	leftOut int
}

// send sends a bundle. Errors are those of the store, of the catalog, endpoint.ErrClient, and
// endpoint.ErrOver.
func (b *Bundles) send(v *endpoint.Request, todo plan, compressed bool) error {
	s := &sending{Bundles: b, v: v, todo: todo, in: todo.instruments[0], end: End{Format: format}, next: token{question: todo.digest()}}
	return s.tarTo(permitted{s}, compressed, s.all)
}

// tarTo writes as a tar what write writes.
func (s *sending) tarTo(out io.Writer, compressed bool, write func() error) error {
	buffer := bufio.NewWriterSize(out, writeBuffer)
	if !compressed {
		s.tar = tar.NewWriter(buffer)
		if err := write(); err != nil {
			return err
		}
		return buffer.Flush()
	}
	z := endpoint.NewCompressor(buffer)
	defer z.Close()
	s.tar = tar.NewWriter(z)
	if err := write(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return buffer.Flush()
}

// permitted is the client, as long as it may read the instrument: an object may take hours.
type permitted struct{ *sending }

// Write implements io.Writer. Errors: endpoint.ErrClient, endpoint.ErrOver.
func (p permitted) Write(b []byte) (int, error) {
	if p.in.Instrument != "" { // of some bundle it is not known yet
		if _, err := p.v.Still(p.in.Instrument); err != nil {
			return 0, err
		}
	}
	return endpoint.Paced{Request: p.v}.Write(b)
}

func (s *sending) all() error {
	if err := s.file("README.txt", s.readme()); err != nil {
		return err
	}
	for i := range s.todo.instruments {
		if err := s.instrument(i); err != nil {
			return err
		}
	}
	s.end.Since = s.next.String()
	return s.writeEnd()
}

// writeEnd writes the last file.
func (s *sending) writeEnd() error {
	if err := s.file(mirrorindex.EndName, append(marshal(s.end), '\n')); err != nil {
		return err
	}
	return s.tar.Close()
}

// file writes one of the bundle's own.
func (s *sending) file(name string, data []byte) error {
	if err := s.tar.WriteHeader(s.header(name, int64(len(data)), time.Unix(0, 0))); err != nil {
		return err
	}
	_, err := s.tar.Write(data)
	return err
}

func (s *sending) header(name string, size int64, at time.Time) *tar.Header {
	return &tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeReg, Name: s.cfg.Site + "/" + name, Size: size, Mode: 0o644, ModTime: at.Truncate(time.Second)}
}
