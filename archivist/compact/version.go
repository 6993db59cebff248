// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

// newVersion begins the version that replaces the files of a day.
func (c *Compactor) newVersion(files manifest.Files, instrument string, day wire.Day) (*manifest.Version, error) {
	header := wire.ManifestHeader{
		Site: c.cfg.Site, Instrument: instrument, Day: day, Writer: c.cfg.Pod, Incarnation: c.cfg.Incarnation,
		Replaces: append([]string(nil), files.Replaced...), NextPart: files.NextPart,
	}
	for _, key := range files.InEffect {
		if name, err := wire.ParseManifestKey(key); err == nil && !name.Compacted {
			header.Replaces = append(header.Replaces, key)
		}
	}
	return manifest.NewVersion(c.cfg.ScratchDir, header, files.NextVersion)
}
