// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// state is what earlier runs fetched, by folder, in the bucket of cursors. Files whose state is lost are fetched again, and
// the gateways find that they are there.
type state struct {
	partner string
	cursors jetstream.KeyValue
	// most is how large a value may be, in bytes.
	most int
}

// valueSpace is left in a value for what is beside its files.
const valueSpace = 8 << 10

// part is some of what is known of a folder, as the bucket has it: a large folder has several.
type part struct {
	Path  string          `json:"path"`
	Files map[string]Seen `json:"files"`
	// More says that there is a part behind this one.
	More bool `json:"more,omitempty"`
}

// fetched is what is known of a folder.
type fetched struct {
	state *state
	path  string
	// seen has the files, by path.
	seen map[string]Seen

	parts []part
	// of says in which part a file is, by path, sizes how many bytes the files of each part take, and changed which parts are to be
	// written.
	of      map[string]int
	sizes   []int
	changed map[int]bool
}

func openState(ctx context.Context, js jetstream.JetStream, site, partner string) (*state, error) {
	kv, err := js.KeyValue(ctx, wire.CursorBucket(site))
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", wire.CursorBucket(site), err)
	}
	return &state{partner: partner, cursors: kv, most: int(js.Conn().MaxPayload()) - valueSpace}, nil
}

// key of a part of a folder, whose path may hold what keys may not.
func (s *state) key(folder string, number int) string {
	sum := sha256.Sum256([]byte(folder))
	key := "tree-" + hex.EncodeToString(sum[:16])
	if number > 0 {
		key += "-" + strconv.Itoa(number)
	}
	return wire.MirrorCursorKey(s.partner, key)
}

// folder returns what is known of one.
func (s *state) folder(ctx context.Context, path string) (*fetched, error) {
	f := &fetched{state: s, path: path, seen: map[string]Seen{}, of: map[string]int{}, changed: map[int]bool{}}
	for more := true; more; {
		n := len(f.parts)
		p, found, err := stream.Load[part](ctx, s.cursors, s.key(path, n))
		if err != nil {
			return nil, fmt.Errorf("read the state of folder %q: %w", path, err)
		}
		if !found {
			p = part{Path: path}
		}
		if p.Files == nil {
			p.Files = map[string]Seen{}
		}
		size := 0
		for name, seen := range p.Files {
			if at := below(path, name); !f.has(at) {
				f.seen[at], f.of[at] = seen, n
				size += sizeOf(name, seen)
			} else { // a run was killed that moved it
				delete(p.Files, name)
			}
		}
		f.parts, f.sizes, more = append(f.parts, p), append(f.sizes, size), p.More
	}
	return f, nil
}

func (f *fetched) has(path string) bool {
	_, is := f.of[path]
	return is
}

// sizeOf is how many bytes a file takes in a value.
func sizeOf(name string, seen Seen) int {
	key, _ := json.Marshal(name) // texts, which can always be written
	value, _ := json.Marshal(seen)
	return len(key) + len(value) + len(`:,`)
}

// set notes that a file is here. It is in the bucket once save returned. If an entry is too large for any value,
// each run fetches the file again.
func (f *fetched) set(path string, seen Seen) {
	name := strings.TrimPrefix(strings.TrimPrefix(path, f.path), "/")
	size := sizeOf(name, seen)
	if n, known := f.of[path]; known {
		f.sizes[n] -= sizeOf(name, f.parts[n].Files[name])
		f.changed[n] = true
		delete(f.parts[n].Files, name)
		delete(f.of, path)
		delete(f.seen, path)
		if f.sizes[n]+size <= f.state.most {
			f.put(n, path, name, seen, size)
			return
		}
	}
	if size > f.state.most {
		return
	}
	last := len(f.parts) - 1
	if f.sizes[last] > 0 && f.sizes[last]+size > f.state.most/2 { // half is left for files that come to take more
		f.parts[last].More, f.changed[last] = true, true
		f.parts, f.sizes = append(f.parts, part{Path: f.path, Files: map[string]Seen{}}), append(f.sizes, 0)
		last++
	}
	f.put(last, path, name, seen, size)
}

func (f *fetched) put(n int, path, name string, seen Seen, size int) {
	f.parts[n].Files[name], f.seen[path], f.of[path] = seen, seen, n
	f.sizes[n] += size
	f.changed[n] = true
}

// save writes what changed. The last part comes first: one that says that there is more finds it there.
func (f *fetched) save(ctx context.Context) error {
	for n := range slices.Backward(f.parts) {
		if !f.changed[n] {
			continue
		}
		if err := stream.Save(ctx, f.state.cursors, f.state.key(f.path, n), f.parts[n]); err != nil {
			return fmt.Errorf("save the state of folder %q: %w", f.path, err)
		}
		delete(f.changed, n)
	}
	return nil
}

func below(folder, name string) string {
	if folder == "" {
		return name
	}
	return folder + "/" + name
}
