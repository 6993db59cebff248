// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"slices"
	"strings"
)

const failedPacksKey = "failedpacks."

// FailedPacksKey is where the status bucket names the packs that a gateway pod could not store.
func FailedPacksKey(gateway string) string { return failedPacksKey + gateway }

// FailedPacksKeys matches all keys of FailedPacksKey.
const FailedPacksKeys = failedPacksKey + "*"

// MaxFailedPacks is how many a report names at most.
const MaxFailedPacks = 1024

// FailedPacks names packs that the object store has not confirmed, and may have nevertheless. No sender was notified that they are
// stored: what they hold is in the archive under other names, or its senders have no receipt.
type FailedPacks struct {
	// Gateway is the pod that wrote the packs, and reports them.
	Gateway string `json:"gateway"`
	// Packs are their keys, the newest last.
	Packs []string `json:"packs"`
}

// With adds packs that are not there yet, and drops the oldest beyond MaxFailedPacks.
func (f FailedPacks) With(keys ...string) FailedPacks {
	all := slices.Clone(f.Packs)
	for _, key := range keys {
		if !slices.Contains(all, key) {
			all = append(all, key)
		}
	}
	f.Packs = all[max(0, len(all)-MaxFailedPacks):]
	return f
}

// DecodeFailedPacks reads a report that stands under a key of FailedPacksKey. A gateway
// speaks only of its own packs: others are left out. Errors: ErrMalformed, ErrNewerFormat.
func DecodeFailedPacks(key string, data []byte) (FailedPacks, error) {
	f, err := Decode[FailedPacks](data)
	f.Packs = slices.DeleteFunc(f.Packs, func(pack string) bool {
		p, err := ParsePackKey(pack)
		return err != nil || p.Writer != f.Gateway || p.Writer != strings.TrimPrefix(key, failedPacksKey)
	})
	return f, err
}
