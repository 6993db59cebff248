// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/substorm/substorm/internal/durable"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// savedRegistry is the last complete registry, as saved on the gateway's volume.
type savedRegistry struct {
	Format   int               `json:"format"`
	Site     string            `json:"site"`
	Epoch    time.Time         `json:"epoch"`
	Revision int64             `json:"revision"`
	Entries  []json.RawMessage `json:"entries"`
}

// save writes a complete snapshot so that a start without NATS finds it whole.
func (s *Snapshot) save(file, site string) error {
	saved := savedRegistry{Format: wire.Format, Site: site, Epoch: s.registry.Epoch, Revision: s.Revision}
	for _, in := range s.known {
		if in.Origin != "" {
			continue // nothing of it comes without NATS, where the runs of mirrors stand
		}
		b, err := wire.Encode(in.entry)
		if err != nil {
			return fmt.Errorf("save the registry: %w", err)
		}
		saved.Entries = append(saved.Entries, b)
	}
	b, err := json.Marshal(saved)
	if err != nil {
		return fmt.Errorf("save the registry: %w", err)
	}
	if err := durable.Replace(file, b, 0o600); err != nil {
		return fmt.Errorf("save the registry: %w", err)
	}
	return nil
}

// load reads what save wrote for the same Site; without a file the registry is empty.
func load(file, site string) (*registry.Snapshot, error) {
	nobody := registry.New().Snapshot()
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nobody, nil
	}
	if err != nil {
		return nobody, fmt.Errorf("registry last seen: %w", err)
	}
	var saved savedRegistry
	if err := json.Unmarshal(b, &saved); err != nil {
		return nobody, fmt.Errorf("registry last seen, %s: %w: %w", file, wire.ErrMalformed, err)
	}
	if err := wire.CheckFormat(saved.Format); err != nil {
		return nobody, fmt.Errorf("registry last seen, %s: %w", file, err)
	}
	if saved.Site != site {
		return nobody, fmt.Errorf("registry last seen, %s, is that of site %q, not %q: the volume belongs to another site", file, saved.Site, site)
	}
	marker, err := wire.Encode(wire.RegistryComplete{Revision: saved.Revision, Count: len(saved.Entries)})
	if err != nil {
		return nobody, fmt.Errorf("registry last seen, %s: %w", file, err)
	}
	known := registry.NewBucket(saved.Epoch)
	known.Take(wire.RegistryCompleteKey, marker, true)
	for i, raw := range saved.Entries {
		var head struct {
			Instrument string `json:"instrument"`
		}
		if err := json.Unmarshal(raw, &head); err != nil || head.Instrument == "" {
			head.Instrument = fmt.Sprint("unreadable-", i) // Resolve says that it cannot be read
		}
		known.Take(wire.RegistryInstrumentKey(head.Instrument), raw, true)
	}
	return registry.Resolve(nobody, known), nil
}
