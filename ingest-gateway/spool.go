// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/wire"
)

// openSpool opens what earlier incarnations left.
func (g *gateway) openSpool() error {
	dir := filepath.Join(g.cfg.DataDir, "spool")
	size := g.cfg.SpoolSize
	if size == 0 {
		var err error
		if size, err = shareOf(g.cfg.DataDir, dir, spoolShare); err != nil {
			return err
		}
	}
	var err error
	g.spool, err = spool.Open(spool.Config{
		Dir: dir, Size: size, Logger: g.log, Quarantined: g.spoolCorrupt,
	})
	return err
}

// spoolCorrupt counts corrupt bytes of the spool that are put into quarantine by keep.
func (g *gateway) spoolCorrupt(q spool.Quarantine, keep func() error) error {
	if q.Notice != nil {
		return g.ledger.Resolved(*q.Notice, wire.CauseCorrupt, keep)
	}
	return g.ledger.Unreadable(filepath.Base(q.File), q.Size, keep)
}

// shareOf returns how many bytes a folder may take of its volume.
func shareOf(volume, dir string, share float64) (int64, error) {
	free, err := freeSpace(volume)
	if err != nil {
		return 0, err
	}
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			free += float64(info.Size())
		}
		return err
	})
	return int64(share * free), err
}

// spoolStatus is the status of the spool as reported to the Site.
func (g *gateway) spoolStatus() *wire.SpoolStatus {
	st := g.spool.Stats()
	s := &wire.SpoolStatus{Objects: st.Objects, Bytes: st.Bytes, Size: st.Size, Quarantined: st.Quarantined}
	if !st.Oldest.IsZero() {
		s.Oldest = &st.Oldest
	}
	return s
}
