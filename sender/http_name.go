// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/internal/wire"
)

// The values of --name-from.
const (
	// NameFromPath is the path below the folder that is sent or watched; of a file
	// that is named itself, its own name.
	NameFromPath = "path"
	// NameFromBase is the file's own name.
	NameFromBase = "base"
	// NameFromNothing sends objects without a name.
	NameFromNothing = "none"
)

// nameOf is what an object is called by the file at rel; "" without a name.
func (c *HTTPConfig) nameOf(rel string) string {
	name := filepath.ToSlash(rel)
	switch {
	case name == "" || name == stdinName || c.NameFrom == NameFromNothing:
		return ""
	case c.NameFrom == NameFromBase:
		name = path.Base(name)
	}
	if wire.CheckUploadName(c.Prefix+name) == nil {
		return name
	}
	return shortName(name)
}

// fullName is the name with the prefix.
func (c *HTTPConfig) fullName(name string) string {
	if name == "" {
		return ""
	}
	return c.Prefix + name
}

// shortName replaces a name that gateways do not accept: the beginning of its SHA-256, which makes
// it unique, and the name's end in ASCII.
func shortName(name string) string {
	end := strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7f && !strings.ContainsRune(`/\:*?"<>|%&'`, r) {
			return r
		}
		return '_'
	}, path.Base(name))
	digest := sha256.Sum256([]byte(name))
	return hex.EncodeToString(digest[:8]) + "-" + end[max(0, len(end)-60):]
}

// escapeName spells a name as a queue keeps it: without what file systems do not take.
func escapeName(name string) string {
	var out strings.Builder
	for i := range len(name) {
		c := name[i]
		unknown := c >= 0x80 && strings.Contains(name[max(0, i-2):min(len(name), i+3)], "\uFFFD") // which a queue takes for no character
		if unknown || c < ' ' || c == 0x7f || strings.IndexByte(`/\:*?"<>|%`, c) >= 0 || i == len(name)-1 && (c == '.' || c == ' ') {
			fmt.Fprintf(&out, "%%%02X", c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

// unescapeName reads what escapeName wrote; another name is itself.
func unescapeName(name string) string {
	if plain, err := url.PathUnescape(name); err == nil && utf8.ValidString(plain) {
		return plain
	}
	return name
}

// parseURLs reads --to where it names URLs of gateways: all of one scheme and path,
// http[s]://host:port/in/<instrument>/[prefix/].
func parseURLs(specs []string) (all []string, prefix string, err error) {
	var first *url.URL
	for spec := range strings.SplitSeq(strings.Join(specs, ","), ",") {
		u, err := url.Parse(strings.TrimSpace(spec))
		if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return nil, "", usage.Errorf("server %q is not a URL such as http://gateway.example:30103/in/INSTRUMENT/", spec)
		}
		if !strings.HasSuffix(u.Path, "/") {
			u.Path += "/"
		}
		instrument, rest, ok := wire.ParseUploadPath(u.Path)
		if !ok {
			return nil, "", usage.Errorf("server %q: the path is /in/INSTRUMENT/, as kubectl get instrument NAME -o yaml shows it", spec)
		}
		if first == nil {
			begin := *u
			first, prefix = &begin, rest
		}
		if u.Scheme != first.Scheme || u.Path != first.Path || u.Scheme != "http" && u.Scheme != "https" {
			return nil, "", usage.Errorf("--to: all servers must have the same scheme, http or https, and the same path; %q does not", spec)
		}
		u.Path = wire.UploadPath(instrument)
		all = append(all, u.String())
	}
	return all, prefix, nil
}

// isURL reports whether --to speaks of HTTP.
func isURL(specs []string) bool { return len(specs) > 0 && strings.Contains(specs[0], "://") }
