// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/pack"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// maxMember is the size of the largest member, in bytes: packBelow is less.
	maxMember = 1 << 20
	// maxGap is how many bytes of a pack are read in vain rather than skipped with another request.
	maxGap = 1 << 20
)

// errNothing: none of the objects can be packed.
var errNothing = errors.New("nothing to pack")

// repack stores a pack of objects, all of one day, and returns their records with the new places, by ID. Objects that
// cannot be read as they were received are left out.
func (c *Compactor) repack(ctx context.Context, instrument string, records []wire.Record) (map[string]wire.Record, error) {
	file, err := manifest.Scratch(c.cfg.ScratchDir)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	digest := sha256.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(file, digest), 256<<10)
	out := pack.NewWriter("", buffered) // its key follows from its bytes
	moved := make(map[string]wire.Record, len(records))
	source := &source{store: c.cfg.Store}
	defer source.close()
	for i, r := range records {
		data, err := source.read(ctx, r, upTo(records[i:]))
		if errors.Is(err, pack.ErrDamaged) || errors.Is(err, objectstore.ErrNotFound) {
			c.cfg.Metrics.damaged.Inc()
			c.cfg.Log.Error("an object is not what was received, and is left where it lies", "instrument", instrument,
				"object", r.ID, "key", r.Key, "error", err)
			continue
		}
		if err != nil {
			return nil, err
		}
		n, err := out.Add(wire.Notice{Site: c.cfg.Site, Instrument: instrument, Record: r}, bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		moved[r.ID] = n.Record
	}
	if out.Members() == 0 {
		return nil, errNothing
	}
	if err := errors.Join(out.Close(), buffered.Flush()); err != nil {
		return nil, fmt.Errorf("scratch: %w", err)
	}
	return c.storeMoved(ctx, moved, file, out, wire.Digest(digest.Sum(nil)))
}

// storeMoved stores the pack that was written, and completes its members' places.
func (c *Compactor) storeMoved(ctx context.Context, moved map[string]wire.Record, file io.ReadSeeker, out *pack.Writer, digest wire.Digest) (map[string]wire.Record, error) {
	var first time.Time
	for _, r := range moved {
		if first.IsZero() || r.ReceivedAt.Before(first) {
			first = r.ReceivedAt
		}
	}
	// No other archivist ever gives a pack this key: a request to delete one that comes
	// late must not find the pack of a successor.
	owner := sha256.Sum256(append(digest[:], c.cfg.Pod+"/"+c.cfg.Incarnation...))
	key := wire.PackKey(c.cfg.Site, first, wire.ArchivistWriter, hex.EncodeToString(owner[:8]), 1)
	for id, r := range moved {
		r.Key = key
		moved[id] = r
	}
	return moved, c.putPack(ctx, key, file, out, digest)
}

func (c *Compactor) putPack(ctx context.Context, key string, file io.ReadSeeker, out *pack.Writer, digest wire.Digest) error {
	if err := c.cfg.Lease.Check(); err != nil {
		return err
	}
	err := c.cfg.Store.Put(ctx, key, file, out.Size(), objectstore.PutOptions{
		ContentType: wire.MediaTypePack, Digest: digest, CreateOnly: true,
		Metadata: map[string]string{
			wire.MetadataFormat: strconv.Itoa(wire.Format), wire.MetadataMembers: strconv.Itoa(out.Members()), wire.MetadataDigest: digest.String(),
		},
	})
	if errors.Is(err, objectstore.ErrExists) {
		// Written before a kill, if it is the same.
		info, headErr := c.cfg.Store.Head(ctx, key)
		if headErr != nil {
			return headErr
		}
		if info.Metadata[wire.MetadataDigest] != digest.String() {
			return fmt.Errorf("%s holds other bytes than those to be stored there: %w", key, err)
		}
		err = nil
	}
	if err == nil {
		c.cfg.Metrics.packs.Inc()
		c.cfg.Metrics.members.Add(float64(out.Members()))
	}
	return err
}

// upTo returns where the last of the records ends that can be read along with the
// first, in the pack that holds it.
func upTo(records []wire.Record) int64 {
	end := records[0].Offset + records[0].Length
	for _, r := range records[1:] {
		if r.Key != records[0].Key || r.Offset < end || r.Offset-end > maxGap {
			break
		}
		end = r.Offset + r.Length
	}
	return end
}

// source reads objects; it reads those that are close to each other with one request.
type source struct {
	store objectstore.Store
	key   string
	body  io.ReadCloser
	at    int64
	until int64
	data  []byte
}

// read returns an object's bytes, which are good until the next call. Until is
// how far the pack will be read. Errors: pack.ErrDamaged, and objectstore's.
func (s *source) read(ctx context.Context, r wire.Record, until int64) ([]byte, error) {
	if err := s.open(ctx, r, until); err != nil {
		return nil, err
	}
	s.data = append(s.data[:0], make([]byte, r.Size)...)
	n, err := io.ReadFull(s.body, s.data)
	s.at += int64(n)
	if err != nil {
		s.close()
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("object %s ends at %d of %d bytes: %w", r.ID, n, r.Size, pack.ErrDamaged)
		}
		return nil, fmt.Errorf("read %s: %w: %w", r.Key, objectstore.ErrUnavailable, err)
	}
	return s.data, pack.Check(bytes.NewReader(s.data), r)
}

func (s *source) open(ctx context.Context, r wire.Record, until int64) error {
	if r.InPack() && s.body != nil && s.key == r.Key && s.at <= r.Offset && r.Offset+r.Length <= s.until {
		n, err := io.CopyN(io.Discard, s.body, r.Offset-s.at)
		s.at += n
		if err != nil {
			return fmt.Errorf("read %s: %w: %w", r.Key, objectstore.ErrUnavailable, err)
		}
		return nil
	}
	s.close()
	place := objectstore.All
	if r.InPack() {
		place = objectstore.Range{Offset: r.Offset, Length: until - r.Offset}
	}
	body, _, err := s.store.Get(ctx, r.Key, place)
	if err != nil {
		return err
	}
	s.key, s.body, s.at, s.until = r.Key, body, r.Offset, until
	return nil
}

func (s *source) close() {
	if s.body != nil {
		_ = s.body.Close()
	}
	s.body = nil
}
