// SPDX-License-Identifier: Apache-2.0

package nameclaims

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// staleWait is how long a replica that does not know an entry yet is given.
const staleWait = 20 * time.Millisecond

// Read returns a claim that exists, though the replica that is asked may not know it yet. Errors:
// stream.ErrUnavailable, wire.ErrMalformed, wire.ErrNewerFormat.
func Read(ctx context.Context, kv jetstream.KeyValue, key string) (wire.NameClaim, uint64, error) {
	for {
		e, err := kv.Get(ctx, key)
		if err == nil {
			c, err := wire.Decode[wire.NameClaim](e.Value())
			return c, e.Revision(), err
		}
		if !errors.Is(err, jetstream.ErrKeyNotFound) {
			return wire.NameClaim{}, 0, Unavailable(key, err)
		}
		if !retry.Sleep(ctx, staleWait) {
			return wire.NameClaim{}, 0, Unavailable(key, ctx.Err())
		}
	}
}

// Unavailable is the error for a name, or the key of its claim, that JetStream does not answer for.
func Unavailable(name string, err error) error {
	return fmt.Errorf("name %q: %w: %w", name, stream.ErrUnavailable, err)
}

// FolderError says that a name would be both an object's and a folder's: no copy of the archive on a file system could have both.
type FolderError struct {
	// Name is wanted for an object.
	Instrument, Name string
	// Both is the name that would be both: Name, which is a folder, or one of its folders, which is an object.
	Both string
}

// Error implements error.
func (e *FolderError) Error() string {
	if e.Both == e.Name {
		return fmt.Sprintf("name %q of instrument %s: there are objects below %q, so it is a folder and cannot be an object, too", e.Name, e.Instrument, e.Name+"/")
	}
	return fmt.Sprintf("name %q of instrument %s: %q is an object, and cannot be a folder, too", e.Name, e.Instrument, e.Both)
}

// maxFolders are remembered, of at most 300 bytes each. The claim of any other folder is looked at again.
const maxFolders = 1 << 14

// Folders claims the folders of names. Its methods may be called from many goroutines.
type Folders struct {
	// IsObject says whether an object without a claim has a name: it was imported, or stored before
	// names had claims. It is asked of each folder that is new.
	IsObject func(ctx context.Context, instrument, name string) (bool, error)

	mu sync.Mutex
	// known are some that have their claims. No claim is removed, but with the whole bucket.
	known map[string]struct{}
}

// Forget is for a bucket that was lost, with its claims.
func (f *Folders) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.known)
}

func (f *Folders) has(instrument, folder string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, found := f.known[instrument+"/"+folder]
	return found
}

func (f *Folders) add(instrument, folder string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil || len(f.known) >= maxFolders {
		f.known = map[string]struct{}{}
	}
	f.known[instrument+"/"+folder] = struct{}{}
}

// Claim claims the folders of a name, the outermost first, so that those of a known one are known.
// With also, what is an object becomes a folder, too. Errors: FolderError, of IsObject, as Read's.
func (f *Folders) Claim(ctx context.Context, kv jetstream.KeyValue, instrument, name string, also bool) error {
	all := wire.NameFolders(name)
	if len(all) == 0 || f.has(instrument, all[len(all)-1]) {
		return nil
	}
	for _, folder := range all {
		if f.has(instrument, folder) {
			continue
		}
		claimed, err := f.claim(ctx, kv, instrument, folder, also)
		if err != nil {
			return err
		}
		if !claimed {
			return &FolderError{Instrument: instrument, Name: name, Both: folder}
		}
		f.add(instrument, folder)
	}
	return nil
}

// claim claims one; false where it is an object.
func (f *Folders) claim(ctx context.Context, kv jetstream.KeyValue, instrument, folder string, also bool) (bool, error) {
	key := wire.NameKey(instrument, folder)
	for {
		claim, revision, err := stream.Record[wire.NameClaim](ctx, kv, key)
		if err != nil {
			return false, Unavailable(folder, err)
		}
		isObject := len(claim.Versions) > 0
		if revision == 0 && f.IsObject != nil {
			if isObject, err = f.IsObject(ctx, instrument, folder); err != nil {
				return false, err
			}
		}
		if claim.Folder || isObject && !also {
			return claim.Folder, nil
		}
		claim.Name, claim.Folder = folder, true
		value, err := wire.Encode(claim)
		if err != nil {
			return false, err
		}
		if revision == 0 {
			_, err = kv.Create(ctx, key, value)
		} else {
			_, err = kv.Update(ctx, key, value, revision)
		}
		if err == nil {
			return true, nil
		}
		if !IsTaken(err) {
			return false, Unavailable(folder, err)
		}
		if !retry.Sleep(ctx, staleWait) {
			return false, Unavailable(folder, ctx.Err())
		}
	}
}
