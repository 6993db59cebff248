// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// errUnlisted: no manifest lists the object.
var errUnlisted = errors.New("not listed")

// byID finds an object where only the manifests know its place: a member of a
// pack, or one that lies in a pack by now. Errors: errUnlisted, those of the
// manifests.
func byID(ctx context.Context, store objectstore.Store, site, id string, s *selection) (wire.Notice, error) {
	within := *s
	if day, ok := wire.DayOfID(id); ok {
		within.day, within.from, within.to = string(day), "", ""
	}
	if _, instrument, err := wire.InstrumentOfKey(id); err == nil {
		within.instruments = []string{instrument}
	}
	for n, err := range within.held(ctx, store, site) {
		if err != nil {
			return wire.Notice{}, err
		}
		if n.ID == id {
			return n, nil
		}
	}
	return wire.Notice{}, fmt.Errorf("%s: %w", id, errUnlisted)
}

// member finds a member of a pack by its ID.
func member(ctx context.Context, store objectstore.Store, site, id string, s *selection) (wire.Notice, error) {
	n, err := byID(ctx, store, site, id, s)
	if errors.Is(err, errUnlisted) {
		return wire.Notice{}, fmt.Errorf("the archive of site %s lists no object %q; a new object is listed within a minute: substorm archive ls shows the keys", site, id)
	}
	return n, err
}
