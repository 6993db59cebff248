// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrConflict: another wrote the entry since it was read.
var ErrConflict = errors.New("the entry was changed by another")

// Cell is an entry of a key-value bucket that has one writer. Every write names
// the revision that it replaces, so that a writer whose time is over fails, and it is
// read as the bucket's leader has it. It is used by one goroutine.
type Cell struct {
	js       jetstream.JetStream
	kv       jetstream.KeyValue
	key      string
	revision uint64
}

// NewCell returns the entry under key. Load comes before Store.
func NewCell(js jetstream.JetStream, kv jetstream.KeyValue, key string) *Cell {
	return &Cell{js: js, kv: kv, key: key}
}

// Load reads the entry; nil if there is none.
func (c *Cell) Load(ctx context.Context) ([]byte, error) {
	value, revision, err := Newest(ctx, c.js, c.kv.Bucket(), c.key)
	if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, fmt.Errorf("read %s of %s: %w", c.key, c.kv.Bucket(), err)
	}
	c.revision = revision // of a deleted entry, the revision of the deletion; 0 if there never was an entry
	return value, nil
}

// Store replaces what Load or the last Store saw. After an error only Load tells
// what the entry holds. Errors: ErrConflict, and what keeps JetStream from
// answering.
func (c *Cell) Store(ctx context.Context, value []byte) error {
	revision, err := c.kv.Update(ctx, c.key, value, c.revision)
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return fmt.Errorf("write %s of %s: %w: %w", c.key, c.kv.Bucket(), ErrConflict, err)
	}
	if err != nil {
		return fmt.Errorf("write %s of %s: %w", c.key, c.kv.Bucket(), err)
	}
	c.revision = revision
	return nil
}

// Revision is the revision of the entry as Load or the last Store saw it.
func (c *Cell) Revision() uint64 { return c.revision }
