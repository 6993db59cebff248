// SPDX-License-Identifier: Apache-2.0

// Package content compares the first bytes of an object with the media type that it is declared to have.
package content

import (
	"bytes"
	"cmp"
	"mime"
	"net/http"
	"strings"

	"github.com/substorm/substorm/internal/secret"
)

// HeadSize is how many bytes are looked at, as net/http does.
const HeadSize = 512

// signatures are those that net/http does not know, of formats of science and archives.
var signatures = []struct{ mediaType, begins string }{
	{"image/fits", "SIMPLE  ="},
	{"image/tiff", "II*\x00"},
	{"image/tiff", "MM\x00*"},
	{"image/tiff", "II+\x00"}, // BigTIFF
	{"image/tiff", "MM\x00+"},
	{"application/x-hdf5", "\x89HDF\r\n\x1a\n"},
	{"application/zstd", "\x28\xb5\x2f\xfd"},
	{"application/zip", "PK\x05\x06"}, // without a file
}

// otherNames are further names of a media type.
var otherNames = map[string]string{
	"application/x-gzip": "application/gzip", "application/x-zip-compressed": "application/zip", "application/fits": "image/fits", "image/x-fits": "image/fits",
	"image/jpg": "image/jpeg", "image/x-ms-bmp": "image/bmp", "image/x-bmp": "image/bmp", "audio/wav": "audio/wave", "audio/x-wav": "audio/wave", "audio/vnd.wave": "audio/wave",
	"video/x-msvideo": "video/avi", "application/x-rar": "application/x-rar-compressed", "application/vnd.rar": "application/x-rar-compressed",
}

// signed are the media types whose objects all begin with a signature that Looks knows. A format that may begin otherwise is not among
// them: MP4 and MP3, or HDF5, which may follow a user block.
var signed = map[string]bool{
	"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true, "image/bmp": true, "image/tiff": true, "image/fits": true,
	"application/gzip": true, "application/zip": true, "application/zstd": true, "application/pdf": true, "application/x-rar-compressed": true, "application/wasm": true,
	"audio/wave": true, "audio/aiff": true, "video/avi": true, "video/webm": true,
}

// Looks guesses the media type of content that begins with these bytes: application/octet-stream if they match
// none.
func Looks(head []byte) string {
	head = head[:min(len(head), HeadSize)]
	for _, s := range signatures {
		if bytes.HasPrefix(head, []byte(s.begins)) {
			return s.mediaType
		}
	}
	looks := named(http.DetectContentType(head))
	if strings.HasPrefix(looks, "text/") {
		return cmp.Or(secret.MediaTypeOf(head), looks)
	}
	return looks
}

// named is a media type without parameters, by the one name that it has here.
func named(mediaType string) string {
	name, _, err := mime.ParseMediaType(mediaType)
	if err != nil {
		return ""
	}
	if other := otherNames[name]; other != "" {
		return other
	}
	return name
}

// Unexpected says what an object that begins with these bytes looks like, if it cannot be of the media type that its Instrument declares,
// or of the one that its sender says; empty if it can, or if nothing is known of them. A sender's media type does not excuse content that
// the Instrument does not declare: uploaders go by the suffix of a file. A secret is expected only where its Instrument declares it.
func Unexpected(declared, said string, head []byte) string {
	if looks := Looks(head); secret.IsMediaType(looks) {
		if named(declared) == looks {
			return ""
		}
		return looks
	}
	return cmp.Or(contradicts(declared, head), contradicts(said, head))
}

// contradicts is Unexpected for one media type.
func contradicts(declared string, head []byte) string {
	said, looks := named(declared), Looks(head)
	switch {
	case len(head) == 0 || said == looks:
		return ""
	case signed[said]:
		return looks
	case isText(said) && signed[looks] && looks != "image/bmp": // a text may begin with BM
		return looks
	default:
		return ""
	}
}

// isText says whether a media type is of text, which has no signature.
func isText(mediaType string) bool {
	switch mediaType {
	case "application/json", "application/xml", "application/yaml":
		return true
	default:
		return strings.HasPrefix(mediaType, "text/") || strings.HasSuffix(mediaType, "+json") || strings.HasSuffix(mediaType, "+xml")
	}
}
