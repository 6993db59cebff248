// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package sender

import "io/fs"

// changed: when a file changed is known from its own time alone.
func changed(fs.FileInfo) int64 { return 0 }
