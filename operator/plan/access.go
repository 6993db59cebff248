// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// accessEntry is who may read an Instrument's data; nil where it is what entries
// mean that say nothing.
func accessEntry(access *v1alpha1.Access) *wire.AccessEntry {
	entry := &wire.AccessEntry{
		Live:    string(cmp.Or(access.Live, v1alpha1.AccessAuthenticated)),
		Archive: string(cmp.Or(access.Archive, v1alpha1.AccessAuthenticated)),
		Readers: slices.Sorted(slices.Values(access.Readers)),
	}
	if access.Embargo != nil {
		entry.EmbargoMillis = access.Embargo.Milliseconds()
	}
	if entry.Live == wire.AccessAuthenticated && entry.Archive == wire.AccessAuthenticated && entry.EmbargoMillis == 0 {
		return nil
	}
	return entry
}

func rightsEntry(rights *v1alpha1.Rights) *wire.RightsEntry {
	if rights == nil {
		return nil
	}
	return &wire.RightsEntry{License: rights.License, DOI: rights.DOI, Citation: rights.Citation, Credit: rights.Credit}
}
