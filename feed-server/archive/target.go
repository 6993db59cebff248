// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/substorm/substorm/internal/wire"
)

// target is what a path below Root means. Without an instrument it is Root itself.
type target struct {
	instrument string
	// path of an object or directory, without slashes around it; empty: all of the
	// instrument's.
	path      string
	directory bool
}

// errTarget: a path is invalid for any object.
var errTarget = errors.New("invalid path")

// parseTarget reads the path of a URL as it was sent. Errors: errTarget.
func parseTarget(escaped string) (target, error) {
	rest, ok := strings.CutPrefix(escaped, Root)
	if !ok {
		return target{}, fmt.Errorf("%w: %.200q does not begin with %s", errTarget, escaped, Root)
	}
	if rest == "" {
		return target{directory: true}, nil
	}
	if len(rest) > 3*wire.MaxKey { // each byte may be escaped
		return target{}, fmt.Errorf("%w: it has %d bytes, at most %d are allowed", errTarget, len(rest), 3*wire.MaxKey)
	}
	instrument, path, below := strings.Cut(rest, "/")
	t := target{instrument: instrument, directory: path == "" || strings.HasSuffix(path, "/")}
	if !below { // the instrument without its slash
		t.directory = false
	}
	var err error
	if t.path, err = unescape(strings.TrimSuffix(path, "/")); err != nil {
		return target{}, err
	}
	if t.instrument, err = unescape(instrument); err != nil {
		return target{}, err
	}
	if t.instrument == "" || t.path == "" && path != "" {
		return target{}, fmt.Errorf("%w: %.200q has an empty part", errTarget, escaped)
	}
	if t.path == "" {
		return t, nil
	}
	name := t.path
	if t.directory {
		name += "/-" // a name does not end with a space, and a folder may
	}
	if err := wire.CheckName(name); err != nil {
		return target{}, fmt.Errorf("%w: %w", errTarget, err)
	}
	return t, nil
}

// unescape reads a path whose slashes stand for themselves: none may be escaped.
func unescape(escaped string) (string, error) {
	if !strings.Contains(escaped, "%") {
		return escaped, nil
	}
	parts := strings.Split(escaped, "/")
	for i, part := range parts {
		plain, err := url.PathUnescape(part)
		if err != nil {
			return "", fmt.Errorf("%w: %w", errTarget, err)
		}
		if strings.Contains(plain, "/") {
			return "", fmt.Errorf("%w: %.200q holds an escaped slash", errTarget, part)
		}
		parts[i] = plain
	}
	return strings.Join(parts, "/"), nil
}

// escape writes a path for a URL. A colon is escaped too, so that a name at the
// beginning of a relative reference is no scheme (RFC 3986, section 4.2).
func escape(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		parts[i] = strings.ReplaceAll(url.PathEscape(part), ":", "%3A")
	}
	return strings.Join(parts, "/")
}

// url is the path of the target's URL.
func (t target) url() string {
	u := Root
	if t.instrument != "" {
		u += escape(t.instrument) + "/"
	}
	u += escape(t.path)
	if t.directory && t.path != "" {
		u += "/"
	}
	return u
}

// String is the target as people read it.
func (t target) String() string {
	if t.path == "" {
		return t.instrument
	}
	return t.instrument + "/" + t.path
}
