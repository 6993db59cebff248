// SPDX-License-Identifier: Apache-2.0

//go:build linux

package objectstore

import "os"

// SyncBy has a folder sync by another function from now on.
func SyncBy(s Store, sync func(*os.File) error) {
	t := s.(*folder).tree
	t.sync, t.begun = sync, true
}

// Forgotten has this process take a folder for new, as after a restart.
func Forgotten(s Store) { trees.Delete(s.(*folder).tree.path) }

// HoldNames has lists of folders hold so many names, and returns what ends that.
func HoldNames(count int) (end func()) {
	was := maxHeld
	maxHeld = count
	return func() { maxHeld = was }
}
