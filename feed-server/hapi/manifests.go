// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"context"
	"io"
	"iter"
	"time"

	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// Manifests is the Archive that a Site's manifests and its object store make.
type Manifests struct {
	Catalog *catalog.Catalog
	Store   objectstore.Store
}

var _ Archive = Manifests{}

// Span implements Archive.
func (m Manifests) Span(ctx context.Context, instrument string, told bool) (from, to time.Time, ok bool, err error) {
	days, err := m.Catalog.Days(ctx, instrument)
	if err != nil {
		return from, to, false, err
	}
	for _, d := range days {
		first, last, err := bounds(d, told)
		if err != nil {
			return from, to, false, err
		}
		if !ok || first.Before(from) {
			from = first
		}
		if !ok || last.After(to) {
			to = last
		}
		ok = true
	}
	return from, to, ok, nil
}

// bounds returns a time before which nothing of a day was observed, and one after which nothing
// was. With told, only objects with a time of observation count.
func bounds(d wire.RootDay, told bool) (from, to time.Time, err error) {
	from, to, err = d.Observed()
	if err != nil || !told {
		return from, to, err
	}
	if d.ObservedFrom != nil {
		from = *d.ObservedFrom
	}
	if d.ObservedTo != nil {
		to = *d.ObservedTo
	}
	return from, to, nil
}

// Observed implements Archive.
func (m Manifests) Observed(ctx context.Context, instrument string, from, to time.Time) iter.Seq2[wire.Record, error] {
	return m.Catalog.Between(ctx, instrument, from, to, catalog.ByObserved)
}

// Tag implements Archive.
func (m Manifests) Tag(ctx context.Context, instrument string, from, to time.Time) (string, error) {
	return m.Catalog.Tag(ctx, instrument, from, to, catalog.ByObserved)
}

// Open implements Archive.
func (m Manifests) Open(ctx context.Context, r wire.Record) (io.ReadCloser, error) {
	return objectpath.Open(ctx, m.Store, r)
}
