// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
)

// selects is a digest of what the run selects and removes: what earlier runs noted is valid only with the same digest. The safety stop is
// no part of it, since a day with pending removals has no tag.
func (p *run) selects() string {
	instruments := slices.Compact(slices.Sorted(slices.Values(p.Instruments)))
	text := fmt.Sprintf("%q %s %s %s %s", instruments, wire.FormatTime(p.ObservedFrom), wire.FormatTime(p.ObservedTo), p.Prune, p.Retractions)
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// checkNames warns of names, not patterns, of instruments that the other side does not have. Errors: ErrNothingSelected.
func (p *run) checkNames(root mirrorindex.Root) (missing bool, err error) {
	if len(p.Instruments) == 0 {
		return false, nil
	}
	selected := false
	for _, pattern := range p.Instruments {
		found := slices.ContainsFunc(root.Instruments, func(line mirrorindex.RootLine) bool { return matches(pattern, line.Instrument) })
		selected = selected || found
		if !found && !strings.ContainsAny(pattern, `*?[\`) {
			missing = true
			p.Logger.Warn("the other side has no such Instrument, or does not let you read it: nothing of it is mirrored", "instrument", pattern)
		}
	}
	if !selected {
		return missing, fmt.Errorf("%w: %s", ErrNothingSelected, strings.Join(p.Instruments, ", "))
	}
	return missing, nil
}

// matches says whether an instrument has a name that fits a pattern, which was parsed before.
func matches(pattern, name string) bool {
	is, _ := path.Match(pattern, name)
	return is
}
