// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/substorm/substorm/internal/wire"
)

// maxChecksumLine bounds one line of a checksum file: a digest and a path.
const maxChecksumLine = 64 << 10

// ErrChecksumLine: a line is none that sha256sum writes.
var ErrChecksumLine = errors.New("a line is neither `<64 hex digits>  <name>` nor `SHA256 (<name>) = <64 hex digits>`, as sha256sum writes them")

// parseChecksumLine reads a line of `sha256sum`, plain or with --tag (GNU
// coreutils manual, "cksum output modes"). Empty lines and those that begin with
// # have no name. Errors: ErrChecksumLine.
func parseChecksumLine(line string) (name string, digest wire.Digest, err error) {
	line = strings.TrimSuffix(line, "\r")
	if line == "" || strings.HasPrefix(line, "#") {
		return "", wire.Digest{}, nil
	}
	line, escaped := strings.CutPrefix(line, `\`)
	var hex string
	if tagged, ok := strings.CutPrefix(line, "SHA256 ("); ok {
		end := strings.LastIndex(tagged, ") = ")
		if end < 0 {
			return "", wire.Digest{}, ErrChecksumLine
		}
		name, hex = tagged[:end], tagged[end+len(") = "):]
	} else {
		var found bool
		if hex, name, found = strings.Cut(line, " "); !found || name == "" || (name[0] != ' ' && name[0] != '*') {
			return "", wire.Digest{}, ErrChecksumLine
		}
		name = name[1:]
	}
	if digest, err = wire.ParseDigest(strings.ToLower(hex)); err != nil {
		return "", wire.Digest{}, ErrChecksumLine
	}
	if escaped {
		if name, err = unescape(name); err != nil {
			return "", wire.Digest{}, err
		}
	}
	if name == "" {
		return "", wire.Digest{}, ErrChecksumLine
	}
	return name, digest, nil
}

// unescape undoes what sha256sum does to names with a backslash or the end of a line.
func unescape(name string) (string, error) {
	var out strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '\\' {
			out.WriteByte(name[i])
			continue
		}
		i++
		if i == len(name) {
			return "", ErrChecksumLine
		}
		switch name[i] {
		case '\\':
			out.WriteByte('\\')
		case 'n':
			out.WriteByte('\n')
		case 'r':
			out.WriteByte('\r')
		default:
			return "", ErrChecksumLine
		}
	}
	return out.String(), nil
}

// checksumLines yields names and digests. Names are clean paths; those below
// root, an absolute path or empty, are relative to it. After an error it ends.
func checksumLines(r io.Reader, root string) iter.Seq2[checksumLine, error] {
	return func(yield func(checksumLine, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxChecksumLine)
		number := 0
		for lines.Scan() {
			number++
			name, digest, err := parseChecksumLine(lines.Text())
			if err != nil {
				yield(checksumLine{}, fmt.Errorf("line %d: %w", number, err))
				return
			}
			if name == "" {
				continue
			}
			name = path.Clean(name)
			if root != "" {
				name = strings.TrimPrefix(name, root+"/")
			}
			if !yield(checksumLine{number, name, digest}, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(checksumLine{}, fmt.Errorf("line %d: %w", number+1, err))
		}
	}
}

type checksumLine struct {
	number int
	name   string
	digest wire.Digest
}

// checksums are the digests of a checksum file, 48 bytes for each name.
type checksums struct {
	all []checksum
	// met are those whose file was there; used by one goroutine.
	met []bool
}

type checksum struct {
	name   nameHash
	digest wire.Digest
}

// nameHash stands for a name.
type nameHash [16]byte

func hashName(name string) nameHash {
	sum := sha256.Sum256([]byte(name))
	return nameHash(sum[:16])
}

func (a checksum) compare(b checksum) int { return bytes.Compare(a.name[:], b.name[:]) }

// readChecksums reads a checksum file. Errors: of lines that cannot be read, of
// names with two digests, and those of r.
func readChecksums(r io.Reader, root string) (*checksums, error) {
	c := &checksums{}
	for line, err := range checksumLines(r, root) {
		if err != nil {
			return nil, err
		}
		c.all = append(c.all, checksum{hashName(line.name), line.digest})
	}
	slices.SortFunc(c.all, func(a, b checksum) int {
		return cmp.Or(a.compare(b), bytes.Compare(a.digest[:], b.digest[:]))
	})
	c.all = slices.Compact(c.all)
	for i := 1; i < len(c.all); i++ {
		if c.all[i].name == c.all[i-1].name {
			return nil, fmt.Errorf("one name has two digests, %s and %s: keep the line that is right", c.all[i-1].digest, c.all[i].digest)
		}
	}
	c.met = make([]bool, len(c.all))
	return c, nil
}

// lookUp returns the digest that the file says a name has.
func (c *checksums) lookUp(name string) (wire.Digest, bool) {
	if c == nil {
		return wire.Digest{}, false
	}
	i, found := c.find(name)
	if !found {
		return wire.Digest{}, false
	}
	c.met[i] = true
	return c.all[i].digest, true
}

func (c *checksums) find(name string) (int, bool) {
	return slices.BinarySearchFunc(c.all, checksum{name: hashName(name)}, checksum.compare)
}

// missing yields the names for which no file was there, reading the file again.
func (c *checksums) missing(r io.Reader, root string) iter.Seq2[checksumLine, error] {
	return func(yield func(checksumLine, error) bool) {
		for line, err := range checksumLines(r, root) {
			if err != nil {
				yield(line, err)
				return
			}
			if i, found := c.find(line.name); found && !c.met[i] {
				c.met[i] = true // once is enough
				if !yield(line, nil) {
					return
				}
			}
		}
	}
}
