// SPDX-License-Identifier: Apache-2.0

// Package build says what a program was built from.
package build

import "runtime/debug"

// release is set by the linker for images and releases:
// -X github.com/substorm/substorm/internal/build.release=v1.2.3.
var release string

// Version is the release, the module's version, or the commit of a build from
// a checkout; "unknown" where the program carries none of them.
func Version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version, changed := info.Main.Version, ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			if version == "(devel)" && len(s.Value) >= 12 {
				version = s.Value[:12]
			}
		case "vcs.modified":
			if s.Value == "true" {
				changed = "+changes"
			}
		}
	}
	if version == "(devel)" || version == "" {
		return "unknown"
	}
	return version + changed
}
