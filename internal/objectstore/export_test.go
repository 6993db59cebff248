// SPDX-License-Identifier: Apache-2.0

package objectstore

import "os"

// ErrName is what a folder says of a key that no file can have.
var ErrName = errName

// Unsynced has a folder sync nothing: the control run of a power cut.
func Unsynced(s Store) { s.(*folder).sync = func(*os.File) error { return nil } }
