// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// An upload by tus lies in the bucket until it is whole, so that any gateway can continue it: staging/<site>/<instrument>/tus/<id>/ holds
// info.json, length.json if the length came later, a piece for each run of bytes that arrived, under its 16-digit offset, and done.json
// once the object is in the archive. Pieces are created and never replaced.

// UploadPrefix is what all keys of an upload begin with.
func UploadPrefix(site, instrument, id string) string {
	return StagingKey(site, instrument, "tus/"+id) + "/"
}

// UploadInfoKey is the key of an upload's UploadInfo.
func UploadInfoKey(site, instrument, id string) string {
	return UploadPrefix(site, instrument, id) + uploadInfo
}

// UploadDoneKey is the key of an upload's UploadDone.
func UploadDoneKey(site, instrument, id string) string {
	return UploadPrefix(site, instrument, id) + uploadDone
}

// UploadLengthKey is the key of an upload's UploadLength.
func UploadLengthKey(site, instrument, id string) string {
	return UploadPrefix(site, instrument, id) + uploadLength
}

// UploadPieceKey is the key of the piece that begins at an offset.
func UploadPieceKey(site, instrument, id string, offset int64) string {
	return fmt.Sprintf("%s%016d", UploadPrefix(site, instrument, id), offset)
}

const (
	uploadInfo = "info.json"
	uploadDone = "done.json"
	// uploadLength comes later than info.json.
	uploadLength = "length.json"
)

var uploadKey = regexp.MustCompile(`^(staging/[a-z0-9-]+/([a-z0-9-]+)/tus/([0-9a-f]{32})/)(info\.json|length\.json|done\.json|[0-9]{16})$`)

// UploadFile is what the key of an upload's says.
type UploadFile struct {
	// Prefix, Instrument and ID of the upload.
	Prefix, Instrument, ID string
	// Offset of a piece; -1 for the other files.
	Offset int64
	// Done: it is the UploadDone; Length: it is the UploadLength.
	Done, Length bool
}

// ParseUploadKey reads a key of an upload, and returns false for other keys.
func ParseUploadKey(key string) (UploadFile, bool) {
	m := uploadKey.FindStringSubmatch(key)
	if m == nil {
		return UploadFile{}, false
	}
	f := UploadFile{Prefix: m[1], Instrument: m[2], ID: m[3], Offset: -1, Done: m[4] == uploadDone, Length: m[4] == uploadLength}
	if !strings.HasSuffix(m[4], ".json") {
		f.Offset, _ = strconv.ParseInt(m[4], 10, 64) // 16 digits fit
	}
	return f, true
}

// IsUploadID says whether an upload can have the id: 32 lower-case hex digits.
func IsUploadID(id string) bool {
	_, ok := ParseUploadKey(UploadInfoKey("s", "i", id))
	return ok
}

// UploadInfo says what an upload will be.
type UploadInfo struct {
	// Length of the object in bytes; 0 where it is Deferred: UploadLength says it then.
	Length   int64 `json:"length"`
	Deferred bool  `json:"deferred,omitempty"`
	// Name and MediaType that the sender gave, if any, and Digest that the bytes
	// should have, if it said so.
	Name      string  `json:"name,omitempty"`
	MediaType string  `json:"mediaType,omitempty"`
	Digest    *Digest `json:"sha256,omitempty"`
	// NoneMatch and Match are If-None-Match and If-Match of the request that created the upload, if any: they are judged
	// when the object is whole, too.
	NoneMatch string `json:"ifNoneMatch,omitempty"`
	Match     string `json:"ifMatch,omitempty"`
	// Metadata is the request's Upload-Metadata.
	Metadata  string    `json:"metadata,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	// ExpiryMillis is how long after its last byte an upload is kept.
	ExpiryMillis int64 `json:"expiryMillis"`
}

func (u *UploadInfo) check() error {
	if u.Length < 0 || u.ExpiryMillis < 0 {
		return fmt.Errorf("upload of %d bytes that is kept %d ms: %w", u.Length, u.ExpiryMillis, ErrMalformed)
	}
	return nil
}

// UploadLength says how long an upload's object is, if no length was stated at the beginning.
type UploadLength struct {
	Length int64 `json:"length"`
}

func (u *UploadLength) check() error {
	if u.Length < 1 {
		return fmt.Errorf("upload of %d bytes: %w", u.Length, ErrMalformed)
	}
	return nil
}

// UploadDone says which object an upload became.
type UploadDone struct {
	ID     string `json:"id"`
	Digest Digest `json:"sha256"`
}
