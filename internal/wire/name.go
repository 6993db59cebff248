// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// NamesBucket holds who has which name, see NameKey.
func NamesBucket(site string) string { return "NAMES_" + site }

// NamesListedKey is the key that says that all names which the archive lists have their
// claims, as NamesListed. If it is not there, the bucket is new, was lost, or is of a
// Substorm of before there was the key: then a name without a claim may be taken.
const NamesListedKey = "_listed"

// NamesListed is the value under NamesListedKey. That it is there says what it means; the
// rest is for people.
type NamesListed struct {
	// At is when the claims were compared with the manifests.
	At time.Time `json:"at"`
}

// NameKey is the key of a name's claim: <instrument>.<hex SHA-256 of the name>.
// Names hold characters that keys of a bucket may not.
func NameKey(instrument, name string) string {
	digest := sha256.Sum256([]byte(name))
	return instrument + "." + hex.EncodeToString(digest[:])
}

// NameClaim says which objects have a name, or that it is a folder. The first version is claimed
// before its object is stored, create-only; a later one by compare-and-set. The folders of a name,
// see NameFolders, are claimed before the name itself.
type NameClaim struct {
	Name string `json:"name"`
	// Versions in ascending order, without a gap. The last one is the current. A folder has none.
	Versions []NameVersion `json:"versions,omitempty"`
	// Folder: objects have names that begin with this one and a slash. A claim has versions too only
	// where an object was received while its name could not be claimed.
	Folder bool `json:"folder,omitempty"`
}

// NameFolders are the folders that a name lies in, the outermost first: "a" and "a/b" of "a/b/c".
func NameFolders(name string) []string {
	var all []string
	for i, c := range []byte(name) {
		if c == '/' {
			all = append(all, name[:i])
		}
	}
	return all
}

// NameVersion is one object that has, or is about to have, a name.
type NameVersion struct {
	Version int    `json:"version"`
	Digest  Digest `json:"sha256"`
	// Size in bytes.
	Size int64 `json:"size"`
	// Key of the object, and its ID.
	Key string `json:"key"`
	// ReceivedAt, Gateway and Incarnation say which object claimed the version.
	ReceivedAt  time.Time `json:"receivedAt"`
	Gateway     string    `json:"gateway"`
	Incarnation string    `json:"incarnation"`
	// Announced: the object is stored and its notice acknowledged. If it is
	// false, that may still be so.
	Announced bool `json:"announced,omitempty"`
}

// Latest returns the current version; false where no object has the name.
func (c NameClaim) Latest() (NameVersion, bool) {
	if len(c.Versions) == 0 {
		return NameVersion{}, false
	}
	return c.Versions[len(c.Versions)-1], true
}

// Find returns the version that has a digest, the latest where several have.
func (c NameClaim) Find(d Digest) (NameVersion, bool) {
	for i := len(c.Versions) - 1; i >= 0; i-- {
		if c.Versions[i].Digest == d {
			return c.Versions[i], true
		}
	}
	return NameVersion{}, false
}

func (c *NameClaim) check() error {
	if c.Name == "" || len(c.Versions) == 0 && !c.Folder {
		return fmt.Errorf("claim of name %q has %d versions: %w", c.Name, len(c.Versions), ErrMalformed)
	}
	for i, v := range c.Versions {
		if v.Version != i+1 || v.Key == "" || v.Size < 0 {
			return fmt.Errorf("claim of name %q: version %d of %d: %w", c.Name, v.Version, len(c.Versions), ErrMalformed)
		}
	}
	return nil
}

// MaxSentName is the longest name that a sender may give, in bytes as JSON in ASCII spells it: the object's metadata, limited to 2 KB by
// S3, holds it, its key, its ID and the ID of the version before.
const MaxSentName = 200

// CheckSentName returns ErrMalformed where a sender may not give a name.
func CheckSentName(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	spelled, err := json.Marshal(name)
	if n := len(asciiJSON(spelled)) - 2; err != nil || n > MaxSentName {
		return fmt.Errorf("name %q takes %d bytes, the limit is %d (a character beyond ASCII takes 6 or 12): %w", name, n, MaxSentName, ErrMalformed)
	}
	return nil
}

// UploadsFolder holds unfinished uploads over HTTP, beside an instrument's names.
const UploadsFolder = ".uploads"

// CheckUploadName returns ErrMalformed where a sender may not give a name over HTTP. Senders and gateways both ask it: a file has
// one name, whichever program sends it.
func CheckUploadName(name string) error {
	if name == UploadsFolder || strings.HasPrefix(name, UploadsFolder+"/") {
		return fmt.Errorf("name %q begins with %s, where uploads are: %w", name, UploadsFolder, ErrMalformed)
	}
	return CheckSentName(name)
}

// uploadRoot is what all paths begin with to which instruments send over HTTP.
const uploadRoot = "/in/"

// UploadPath is below which an instrument sends over HTTP: /in/<instrument>/.
func UploadPath(instrument string) string { return uploadRoot + instrument + "/" }

// ParseUploadPath returns the instrument that a path of HTTP, decoded, names, and
// what follows it; false for other paths.
func ParseUploadPath(path string) (instrument, rest string, ok bool) {
	after, ok := strings.CutPrefix(path, uploadRoot)
	if !ok {
		return "", "", false
	}
	instrument, rest, ok = strings.Cut(after, "/")
	return instrument, rest, ok && instrumentLabel.MatchString(instrument)
}

// instrumentLabel is what an instrument's name is, as any DNS label.
var instrumentLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
