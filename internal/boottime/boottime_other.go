// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package boottime

import "time"

var started = time.Now()

// Now is the time since the program began. Programs that need more run on Linux.
func Now() time.Duration { return time.Since(started) }
