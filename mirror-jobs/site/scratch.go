// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"fmt"
	"sync"

	"github.com/substorm/substorm/internal/diskbudget"
)

// scratchMargin is what of the scratch is left for notes about parts, and for folders.
const scratchMargin = 16 << 20

// scratch is what of the disk large objects that are on their way may take.
type scratch struct {
	mu sync.Mutex
	// free bytes, and those that were taken and come back.
	free, taken int64
	// changed is closed when some came back.
	changed chan struct{}
}

// scratchError says that an object has no space in the scratch.
type scratchError struct{ needs, has int64 }

// Error implements error.
func (e *scratchError) Error() string {
	return fmt.Sprintf("on its way it takes %d bytes of the disk, and the run has %d: set spec.scratchSize of the MirrorPartner to more", e.needs, e.has)
}

// openScratch measures what there is: a run that was killed may have left parts of large objects.
func openScratch(ctx context.Context, cfg *Config) (*scratch, error) {
	if err := cfg.Scratch.RemoveObjects(); err != nil {
		return nil, fmt.Errorf("scratch: %w", err)
	}
	free, _, err := diskbudget.Space(cfg.Scratch.Path())
	if err != nil {
		return nil, err
	}
	if cfg.ScratchSize > 0 {
		used, err := diskbudget.Measure(ctx, cfg.Scratch.Path())
		if err != nil {
			return nil, err
		}
		free = min(free, cfg.ScratchSize-used.Total())
	}
	return &scratch{free: max(0, free-scratchMargin), changed: make(chan struct{})}, nil
}

// take waits until some bytes are free. Errors: scratchError if they never are, ctx's.
func (s *scratch) take(ctx context.Context, bytes int64) error {
	for {
		s.mu.Lock()
		has, fits, changed := s.free+s.taken, bytes <= s.free, s.changed
		if fits {
			s.free, s.taken = s.free-bytes, s.taken+bytes
		}
		s.mu.Unlock()
		switch {
		case fits:
			return nil
		case bytes > has:
			return &scratchError{bytes, has}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// giveBack ends what take began: so many bytes are free now, which are fewer where parts stay on the disk.
func (s *scratch) giveBack(taken, free int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken, s.free = s.taken-taken, s.free+free
	close(s.changed)
	s.changed = make(chan struct{})
}
