// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// state is what earlier runs fetched, by folder, in the bucket of cursors. What is lost of it is fetched again, and found to be
// there by the gateways.
type state struct {
	partner string
	cursors jetstream.KeyValue
	// most is how large a value may be, in bytes.
	most int64
}

// folderState is what is known of a folder.
type folderState struct {
	Path  string          `json:"path"`
	Files map[string]Seen `json:"files"`
}

func openState(ctx context.Context, js jetstream.JetStream, site, partner string) (*state, error) {
	kv, err := js.KeyValue(ctx, wire.CursorBucket(site))
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", wire.CursorBucket(site), err)
	}
	return &state{partner: partner, cursors: kv, most: js.Conn().MaxPayload()}, nil
}

// key of a folder, whose path may hold what keys may not.
func (s *state) key(folder string) string {
	sum := sha256.Sum256([]byte(folder))
	return wire.MirrorCursorKey(s.partner, "tree-"+hex.EncodeToString(sum[:16]))
}

// folder returns what was seen in one, by path.
func (s *state) folder(ctx context.Context, path string) (map[string]Seen, error) {
	is, _, err := stream.Load[folderState](ctx, s.cursors, s.key(path))
	if err != nil {
		return nil, fmt.Errorf("what was fetched of folder %q: %w", path, err)
	}
	all := make(map[string]Seen, len(is.Files))
	for name, seen := range is.Files {
		all[below(path, name)] = seen
	}
	return all, nil
}

// set notes what is seen in a folder. Of one with so many files that a message does not hold them, it notes as many as fit.
func (s *state) set(ctx context.Context, path string, all map[string]Seen) error {
	is := folderState{Path: path, Files: make(map[string]Seen, len(all))}
	space := s.most - 4<<10
	for name, seen := range all {
		name = strings.TrimPrefix(strings.TrimPrefix(name, path), "/")
		if space -= int64(2*len(name)+len(seen.Mark)+len(seen.ETag)+len(seen.Modified)) + 64; space < 0 {
			break
		}
		is.Files[name] = seen
	}
	if err := stream.Save(ctx, s.cursors, s.key(path), is); err != nil {
		return fmt.Errorf("what was fetched of folder %q: %w", path, err)
	}
	return nil
}

func below(folder, name string) string {
	if folder == "" {
		return name
	}
	return folder + "/" + name
}
