// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"

	"golang.org/x/sys/unix"
)

// attributeName is the extended attribute with what is known of an object beside its bytes: it is synced with them, and
// `getfattr -n user.substorm` shows it.
const attributeName = "user.substorm"

// maxAttribute is the most that it may hold, in bytes: an ext4 with blocks of 4 KiB takes no more.
const maxAttribute = 4000

// described is the attribute, as JSON. A file without it is an object that somebody else put there.
type described struct {
	ContentType string            `json:"contentType,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

func setAttribute(file *os.File, opts PutOptions) error {
	d := described{ContentType: opts.ContentType, Metadata: map[string]string{}}
	for name, value := range opts.Metadata {
		d.Metadata[http.CanonicalHeaderKey(name)] = value
	}
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if len(data) > maxAttribute {
		return fmt.Errorf("content type and metadata of %d bytes: at most %d are kept", len(data), maxAttribute)
	}
	return explainAttributes(unix.Fsetxattr(int(file.Fd()), attributeName, data, 0))
}

func attribute(file *os.File) (contentType string, metadata map[string]string, err error) {
	buffer := make([]byte, maxAttribute)
	n, err := unix.Fgetxattr(int(file.Fd()), attributeName, buffer)
	if errors.Is(err, unix.ENODATA) {
		return defaultContentType, map[string]string{}, nil
	}
	if err != nil {
		return "", nil, explainAttributes(err)
	}
	var d described
	if err := json.Unmarshal(buffer[:n], &d); err != nil {
		return "", nil, fmt.Errorf("the attribute %s of the file: %w", attributeName, err)
	}
	if d.Metadata == nil {
		d.Metadata = map[string]string{}
	}
	if d.ContentType == "" {
		d.ContentType = defaultContentType
	}
	return d.ContentType, d.Metadata, nil
}

const defaultContentType = "application/octet-stream"

// checkAttributes says whether the file system of a folder keeps attributes.
func checkAttributes(folder string) error {
	return explainAttributes(unix.Setxattr(folder, attributeName, []byte("{}"), 0))
}

func explainAttributes(err error) error {
	if errors.Is(err, unix.ENOTSUP) {
		return fmt.Errorf("its file system keeps no extended attributes (user.*), which hold what is known of an object: use ext4, XFS or Btrfs: %w", err)
	}
	return err
}
