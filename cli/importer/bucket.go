// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// inPlace is a tree in the Site's own bucket. Its objects stay where they lie.
type inPlace struct {
	// prefix is empty or ends with a slash.
	prefix string
	store  objectstore.Store
}

func (b *inPlace) key(name string) string { return b.prefix + name }

func (b *inPlace) each(ctx context.Context) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		for info, err := range b.store.List(ctx, b.prefix, "") {
			if err != nil {
				yield(item{}, err)
				return
			}
			if wire.IsOurs(info.Key) || strings.HasSuffix(info.Key, "/") {
				continue // Substorm's own, or the marker of a folder
			}
			if !yield(item{strings.TrimPrefix(info.Key, b.prefix), info.Size, info.ModifiedAt}, nil) {
				return
			}
		}
	}
}

func (b *inPlace) place(ctx context.Context, p *placement) error {
	p.notice.Name = p.notice.Key // as a name it stays the same whatever prefix is imported
	if len(p.before) > 0 {
		// Other bytes lie there than those that are listed. Its time makes the ID unique, and the same in the next run.
		p.version = true
		p.notice.ID = p.notice.Key + "?modified=" + wire.FormatTime(p.modified)
	}
	if p.trust && p.listed != nil && !p.version { // a list may be older than what lies there now
		return p.trusted()
	}
	if err := b.read(ctx, p); err != nil {
		return err
	}
	p.known = holds(p.before, p.notice.Digest) // then it was only copied onto itself
	return nil
}

func (b *inPlace) read(ctx context.Context, p *placement) error {
	body, info, err := b.store.Get(ctx, p.notice.Key, objectstore.All)
	if err != nil {
		return whyNot(ctx, err)
	}
	defer body.Close()
	if info.Size != p.size || !info.ModifiedAt.Truncate(time.Second).Equal(p.modified.Truncate(time.Second)) {
		return because(Changing, "it was written anew while the tree was listed: import once more")
	}
	digest, size, err := digestOf(ctx, body)
	p.read = size
	if err != nil {
		return whyNot(ctx, err)
	}
	if size != p.size {
		return because(Changing, "it had %d bytes and now has %d", p.size, size)
	}
	return p.digested(digest)
}

// whyNot tells what is about one object from what ends the import.
func whyNot(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, objectstore.ErrUnavailable), errors.Is(err, objectstore.ErrNoBucket):
		return err
	default:
		return &unplaced{Unreadable, err}
	}
}
