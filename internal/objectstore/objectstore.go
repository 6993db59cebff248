// SPDX-License-Identifier: Apache-2.0

// Package objectstore is a bucket behind plain S3. Only what every S3 server
// has is used: no notifications, no extensions of one vendor. On Linux a bucket
// may also be a folder of this computer, of plain files: see folder.
package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Errors that Store's methods wrap; tell them apart with errors.Is. Only
// ErrUnavailable is worth another try with nothing changed.
var (
	// ErrNotFound: there is no object (or upload) under this key.
	ErrNotFound = errors.New("no such object")
	// ErrRange: the object ends before the range begins.
	ErrRange = errors.New("the object has no bytes in this range")
	// ErrNoBucket: the bucket itself is missing.
	ErrNoBucket = errors.New("no such bucket")
	// ErrExists: CreateOnly was requested and the key is taken. It also occurs when an earlier attempt of the same call had arrived and
	// only its answer was lost: a caller that must know reads what is there.
	ErrExists = errors.New("object exists")
	// ErrAccessDenied: the credentials are unknown, wrong, expired or may not do this, or
	// the clocks of client and server are too far apart.
	ErrAccessDenied = errors.New("access denied by the object store")
	// ErrDigest: the bytes that arrived are not those of the digest.
	ErrDigest = errors.New("the object store received bytes other than those sent")
	// ErrUnavailable: the server cannot be reached, does not answer in time,
	// says that it is busy, or something else answers in its place. Nothing is known about whether the call took effect.
	ErrUnavailable = errors.New("object store unavailable")
	// ErrNoS3: the endpoint answers, and not as an S3 server does: a captive portal, or a proxy that sends requests elsewhere. It is also an
	// ErrUnavailable.
	ErrNoS3 = fmt.Errorf("%w: the endpoint does not answer as an S3 server does: check its URL and the proxies before it", ErrUnavailable)
	// ErrFull: the server has no space left. It is also an ErrUnavailable.
	ErrFull = fmt.Errorf("object store is full: %w", ErrUnavailable)
)

// Store is one bucket. Its methods may be called from many goroutines.
//
// Every call ends when its context does, with the context's error; a deadline
// that passed is also ErrUnavailable. A call is tried up to three times, with
// pauses of less than a second, before it is ErrUnavailable; each try ends when
// the server neither takes bytes nor answers for Config.StallTimeout. All errors
// name the call and the key.
type Store interface {
	// Put stores size bytes of body under key and returns once the server
	// acknowledged all of them. Body is read from its offset 0, by this
	// goroutine or another until Put returns and never after, several times
	// where the call is tried again; a body that ends early is an error and
	// leaves no object. Put never closes body.
	Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts PutOptions) error

	// NewUpload begins an object whose size is not known yet. An upload that is
	// not completed must be aborted; AbortOldUploads finds those that a kill
	// left. Digest of opts is not used.
	NewUpload(ctx context.Context, key string, opts PutOptions) (Upload, error)

	// Copy makes the object to out of from, inside the server and whatever the
	// size (at least one byte), with other metadata. Readers see all of to or
	// nothing. Digest of opts is not used.
	Copy(ctx context.Context, from, to string, opts PutOptions) error

	// Get opens the bytes of an object. Reading may fail at any point (an error
	// of Read that is not io.EOF) and returns an error rather than io.EOF where
	// the connection ended before the last byte. The caller closes the reader.
	// Info is as from List, without metadata.
	Get(ctx context.Context, key string, r Range) (io.ReadCloser, Info, error)

	// Head describes an object, with its metadata.
	Head(ctx context.Context, key string) (Info, error)

	// List yields the objects whose keys begin with prefix and come after
	// startAfter (empty: from the first), in the order of their keys' bytes and
	// without metadata. It fetches pages as they are asked for. After an error
	// it ends. Objects that are stored or deleted while it runs may be missed
	// or shown.
	List(ctx context.Context, prefix, startAfter string) iter.Seq2[Info, error]

	// Folders yields what comes between prefix, which ends with a slash, and the
	// next slash of the keys beneath it: each name once, in order.
	Folders(ctx context.Context, prefix string) iter.Seq2[string, error]

	// Delete removes an object. A key that holds none is no error.
	Delete(ctx context.Context, key string) error

	// AbortOldUploads removes uploads under prefix that were begun before a time
	// and neither completed nor aborted, and returns how many. MinIO shows only
	// uploads whose key is the prefix, and removes the others itself when they
	// are a day old.
	AbortOldUploads(ctx context.Context, prefix string, before time.Time) (int, error)

	// CheckBucket returns nil where the bucket exists and can be listed.
	CheckBucket(ctx context.Context) error

	// EnsureBucket makes the bucket where it is missing and says whether it did.
	EnsureBucket(ctx context.Context) (created bool, err error)
}

// Upload is an object that arrives in parts. Parts may be sent at the same time.
type Upload interface {
	// Part sends part number, counted from 1: size bytes of body, as Put does.
	// The server refuses bytes that have another digest; a zero one is computed.
	// All parts but the last hold at least MinPart bytes. Sending a number again
	// replaces that part.
	Part(ctx context.Context, number int, body io.ReadSeeker, size int64, digest wire.Digest) error
	// Complete makes the object out of the parts in the order of their numbers.
	Complete(ctx context.Context) error
	// Abort gives the upload up and frees its parts. An upload that is gone is
	// no error.
	Abort(ctx context.Context) error
}

// MinPart is the least size of a part that is not the last one, in bytes, and
// MaxParts the greatest number of parts (Amazon S3 User Guide, "Multipart
// upload limits").
const (
	MinPart  = 5 << 20
	MaxParts = 10_000
)

// PutOptions describe an object.
type PutOptions struct {
	// ContentType defaults to application/octet-stream.
	ContentType string
	// Metadata is the user metadata, x-amz-meta-<name>. S3 does not keep the
	// case of names: they come back as HTTP spells them (Like-This). Values may
	// hold any UTF-8; all of it together must stay under 2 KB.
	Metadata map[string]string
	// Digest of the bytes, where it is known; the zero value is not. The server
	// refuses other bytes (ErrDigest). Without it body is read once more to
	// compute it.
	Digest wire.Digest
	// CreateOnly refuses to replace an object (ErrExists). If several writers
	// write one key, exactly one succeeds.
	CreateOnly bool
}

// Range is a part of an object: Length bytes from Offset on. A Length of 0
// means up to the end. A range that begins behind the end is an error.
type Range struct {
	Offset, Length int64
}

// All is the range of a whole object.
var All = Range{}

// Info describes a stored object.
type Info struct {
	Key  string
	Size int64
	// ModifiedAt is when the object was stored, by the server's clock.
	ModifiedAt time.Time
	// ContentType and Metadata are known from Head and Get, not from List.
	ContentType string
	Metadata    map[string]string
}
