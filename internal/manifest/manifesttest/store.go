// SPDX-License-Identifier: Apache-2.0

package manifesttest

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
)

// ErrKilled ends who writes, as the loss of the lease does.
var ErrKilled = fmt.Errorf("killed: %w", stream.ErrLeaseLost)

// Store notes what is read, and stops writing when a test says so.
type Store struct {
	objectstore.Store
	// Refuse says why a key cannot be stored, or deleted; nil: it can. Set it only while there are no writes.
	Refuse func(key string, deletes bool) error

	mu   sync.Mutex
	gets []string
	left int // writes until it is killed; negative: without end
}

// KillAfter lets so many writes be done before all fail with ErrKilled; negative: all.
func (s *Store) KillAfter(writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = writes
}

// Gets returns the keys that were read since it was last called.
func (s *Store) Gets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	gets := s.gets
	s.gets = nil
	return gets
}

// Get implements objectstore.Store.
func (s *Store) Get(ctx context.Context, key string, r objectstore.Range) (io.ReadCloser, objectstore.Info, error) {
	s.mu.Lock()
	s.gets = append(s.gets, key)
	s.mu.Unlock()
	return s.Store.Get(ctx, key, r)
}

// Put implements objectstore.Store.
func (s *Store) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objectstore.PutOptions) error {
	if err := s.write(key, false); err != nil {
		return err
	}
	return s.Store.Put(ctx, key, body, size, opts)
}

// Delete implements objectstore.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := s.write(key, true); err != nil {
		return err
	}
	return s.Store.Delete(ctx, key)
}

func (s *Store) write(key string, deletes bool) error {
	if s.Refuse != nil {
		if err := s.Refuse(key, deletes); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.left == 0:
		return ErrKilled
	case s.left > 0:
		s.left--
	}
	return nil
}

// Lease is held until its store is killed.
type Lease struct{ Store *Store }

// Check returns ErrKilled once it is lost.
func (l Lease) Check() error {
	l.Store.mu.Lock()
	defer l.Store.mu.Unlock()
	if l.Store.left == 0 {
		return ErrKilled
	}
	return nil
}
