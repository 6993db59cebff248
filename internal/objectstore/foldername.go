// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Names of files and folders that stand for no part of a key: no escape of a part is spelled like one.
const (
	// ownObject is the object of a key that is also the beginning of others: a/%object is the object a beside the object a/b.
	ownObject = "%object"
	// emptyPart is a part of no bytes: a//b is a/%/b.
	emptyPart = "%"
	// moreSuffix ends the name of a folder whose entries continue the part that its name begins.
	moreSuffix = "%+"
)

const (
	// maxKey is the longest key, in bytes (Amazon S3 User Guide, "Naming Amazon S3 objects").
	maxKey = 1024
	// partLength is how many bytes a name may have before the rest of the part goes into a folder beneath. File systems take 255
	// (NAME_MAX); an escaped byte, a continuation's suffix and what other programs add to names (".part") fit into what is left.
	partLength = 240
)

var (
	errEmptyKey = errors.New("a key has at least one byte")
	errLongKey  = fmt.Errorf("a key has at most %d bytes", maxKey)
)

// pathOf is the file of a key, relative to the bucket's folder: the parts of the key between slashes are folders and the file,
// each by its own bytes but for those that escape writes otherwise. The paths of two keys differ, and none leads out of the bucket
// or to a name that begins with a point.
func pathOf(key string) (string, error) {
	switch {
	case key == "":
		return "", errEmptyKey
	case len(key) > maxKey:
		return "", errLongKey
	}
	var names []string
	for part := range strings.SplitSeq(key, "/") {
		names = append(names, namesOf(part)...)
	}
	return strings.Join(names, "/"), nil
}

// namesOf are the names of a part of a key: one, or where it is long those of the folders that it begins in, too. All parts that
// begin with the same long bytes are in the same folder, so that a list can go through it at once.
func namesOf(part string) (names []string) {
	if isPlain(part) {
		return []string{part}
	}
	for {
		begin := beginning(part)
		if begin == len(part) && len(escape(part)) < partLength {
			return append(names, escape(part))
		}
		names, part = append(names, escape(part[:begin])+moreSuffix), part[begin:]
	}
}

// isPlain says whether a part is a name as it is: nearly all are.
func isPlain(part string) bool {
	for i := range len(part) {
		if isEscaped(part[i], i == 0) {
			return false
		}
	}
	return part != "" && len(part) < partLength
}

// beginning is how many bytes of a part its first name holds.
func beginning(part string) int {
	length := 0
	for i := range len(part) {
		if length += len(escapeByte(part[i], i == 0)); length >= partLength {
			return i + 1
		}
	}
	return len(part)
}

func escape(part string) string {
	if part == "" {
		return emptyPart
	}
	var name strings.Builder
	for i := range len(part) {
		name.WriteString(escapeByte(part[i], i == 0))
	}
	return name.String()
}

// isEscaped: what no name may hold (NUL), what people and shells stumble over (control characters), what this file gives a meaning
// (%), and a point at the beginning of a name. All other bytes, also those that are no UTF-8, stay.
func isEscaped(b byte, first bool) bool {
	return b < ' ' || b == 0x7f || b == '%' || b == '.' && first
}

func escapeByte(b byte, first bool) string {
	if isEscaped(b, first) {
		return fmt.Sprintf("%%%02X", b)
	}
	return string([]byte{b})
}

// part is what a name says of a key.
type part struct {
	bytes string
	// more: the bytes are the beginning of a part, and what the name's folder holds continues it.
	more bool
}

// partOf reads a name. False: no key has it, which is so of what people put there under names with a % in them.
func partOf(name string) (part, bool) {
	begin, more := strings.CutSuffix(name, moreSuffix)
	bytes, ok := unescape(begin)
	if !ok {
		return part{}, false
	}
	// Another name of the same bytes is none that a key leads to.
	if names := namesOf(bytes); names[0] != name || more != (len(names) > 1) {
		return part{}, false
	}
	return part{bytes, more}, true
}

func unescape(name string) (string, bool) {
	if name == emptyPart {
		return "", true
	}
	var bytes strings.Builder
	for {
		before, after, found := strings.Cut(name, "%")
		bytes.WriteString(before)
		if !found {
			return bytes.String(), true
		}
		if len(after) < 2 {
			return "", false
		}
		b, err := hex.DecodeString(after[:2])
		if err != nil {
			return "", false
		}
		bytes.Write(b)
		name = after[2:]
	}
}
