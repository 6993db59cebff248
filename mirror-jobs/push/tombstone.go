// SPDX-License-Identifier: Apache-2.0

package push

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// TombstoneSuffix ends the name of a file that tells why there is no copy any more.
const TombstoneSuffix = ".retracted.json"

// Tombstone is what it says, in the words of the archive's records.
type Tombstone struct {
	// Path that the copy had at the partner.
	Path   string      `json:"path"`
	ID     string      `json:"id"`
	Digest wire.Digest `json:"sha256"`
	Size   int64       `json:"size"`
	State  wire.State  `json:"state"`
	Reason string      `json:"reason,omitempty"`
	// RetractedAt and PurgedAt are when it was.
	RetractedAt *time.Time `json:"retractedAt,omitempty"`
	PurgedAt    *time.Time `json:"purgedAt,omitempty"`
	ReceivedAt  time.Time  `json:"receivedAt"`
	Version     int        `json:"version,omitempty"`
	// ReplacedBy is the path of the current version.
	ReplacedBy string `json:"replacedBy,omitempty"`
}

// leaveTombstones leaves a tombstone beside each copy that has one, before it goes: a run that is killed in between finds the copy again.
// It returns the copies that may go.
func (r *run) leaveTombstones(ctx context.Context, d *pushed, p *place, there []gone) (may []gone, err error) {
	var files []File
	var of []gone
	for _, g := range there {
		if !r.policy.Tombstone(g.record) {
			may = append(may, g)
			continue
		}
		f, err := tombstone(g)
		if err != nil {
			return nil, err
		}
		if len(path.Base(f.Path)) > 255 {
			r.Logger.Warn("the name of a copy is too long for a file beside it that says why it is gone", "path", g.path, "reason", g.record.Reason)
			may = append(may, g)
			continue
		}
		files, of = append(files, f), append(of, g)
	}
	if len(files) == 0 {
		return may, nil
	}
	err = p.mover.Deliver(ctx, files, true, func(i int, err error) {
		if err == nil {
			may = append(may, of[i])
			return
		}
		r.keep(d, of[i:i+1], fmt.Errorf("it does not take the file that says why the copy is gone: %w", err))
	})
	return may, err
}

func tombstone(g gone) (File, error) {
	r := g.record
	text, err := json.MarshalIndent(Tombstone{
		Path: g.path, ID: r.ID, Digest: r.Digest, Size: r.Size, State: r.State, Reason: r.Reason,
		RetractedAt: r.RetractedAt, PurgedAt: r.PurgedAt, ReceivedAt: r.ReceivedAt, Version: r.Version, ReplacedBy: g.by,
	}, "", "  ")
	if err != nil {
		return File{}, err
	}
	text = append(text, '\n')
	modified := r.ChangedAt()
	if modified.IsZero() {
		modified = r.ReceivedAt
	}
	return File{
		Path: g.path + TombstoneSuffix, Size: int64(len(text)), Modified: modified, Digest: sha256.Sum256(text), MediaType: "application/json",
		Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
	}, nil
}

// clear removes the tombstones of paths that have an object again.
func (r *run) clear(ctx context.Context, b batch, ended []error) error {
	var paths []string
	of := map[*pushed]bool{}
	for i, f := range b.files {
		if f.clears && ended[i] == nil {
			paths = append(paths, f.Path+TombstoneSuffix)
			of[b.of[i]] = true
		}
	}
	if len(paths) == 0 {
		return nil
	}
	err := r.server.refused
	if err == nil {
		err = r.Mover.Remove(ctx, paths)
	}
	var kept *KeptError
	if err == nil || !errors.As(err, &kept) && !r.refuses(ctx, r.server, err, &r.server.refused) {
		return err
	}
	r.Logger.Warn("cannot remove files at the partner that say why copies are gone, although the copies are there again", "error", err)
	for d := range of {
		d.stays = d.stays || kept == nil // the next run removes them
	}
	return nil
}
