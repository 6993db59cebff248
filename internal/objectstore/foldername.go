// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"errors"
	"strings"
)

// maxName is the longest name of a file, in bytes (NAME_MAX of Linux' file systems).
const maxName = 255

var errName = errors.New("a part of the key between slashes is longer than 255 bytes as the name of a file: the store is a folder")

// nameOf is the path of a key's file in the bucket. Each part of the key between slashes is a name: as it is, but for a percent sign
// (%25), a NUL (%00) and a point at its beginning (%2E), so that no key leads out of the bucket or to what is hidden. A part that is
// empty is the name %.
func nameOf(key string) (string, error) {
	parts := strings.Split(key, "/")
	for i, part := range parts {
		parts[i] = escapePart(part)
		if len(parts[i]) > maxName {
			return "", errName
		}
	}
	return strings.Join(parts, "/"), nil
}

var escapes = strings.NewReplacer("%", "%25", "\x00", "%00")

func escapePart(part string) string {
	if part == "" {
		return "%"
	}
	escaped := escapes.Replace(part)
	if escaped[0] == '.' {
		escaped = "%2E" + escaped[1:]
	}
	return escaped
}

var unescapes = strings.NewReplacer("%25", "%", "%00", "\x00", "%2E", ".")

// partOf is the part of the key of which a file or a folder has the name.
func partOf(name string) string {
	if name == "%" {
		return ""
	}
	return unescapes.Replace(name)
}
