// SPDX-License-Identifier: Apache-2.0

package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// maxUploadFile bounds what is read of the small files of an upload, in bytes.
const maxUploadFile = 64 << 10

// errNoUpload says that there is no upload of that id, or no more.
var errNoUpload = errors.New("the upload does not exist, or no longer exists: start a new one")

// errWaits says that the object of an upload is neither in the store nor listed: it
// may be in a spool.
var errWaits = errors.New("the object is not in the store yet")

// upload is an upload by tus as the bucket has it.
type upload struct {
	server         *Server
	instrument, id string
	info           wire.UploadInfo
	// unknown: nothing was said yet of how long the object is, which is then no member of info.
	unknown bool
	// pieces that follow each other from the first byte, and what is behind a gap:
	// left by requests that were given up.
	pieces, orphans []run
	// offset is how many bytes have arrived.
	offset int64
	// heard is when the last of them did.
	heard time.Time
	// isDone: the object is in the archive, and done says which.
	isDone bool
}

// run is a piece.
type run struct {
	key          string
	offset, size int64
}

// conditions are the conditions of the request that created the upload.
func (u *upload) conditions() conditions {
	h := http.Header{}
	for name, said := range map[string]string{headerNoneMatch: u.info.NoneMatch, headerMatch: u.info.Match} {
		if said != "" {
			h.Set(name, said)
		}
	}
	return conditions{h}
}

func (u *upload) whole() bool { return !u.unknown && u.offset == u.info.Length }

func (u *upload) expires() time.Time {
	return u.heard.Add(time.Duration(u.info.ExpiryMillis) * time.Millisecond)
}

// openUpload reads what the bucket has of an upload. Errors: errNoUpload, and
// those of the store.
func (s *Server) openUpload(ctx context.Context, instrument, id string) (*upload, error) {
	if !wire.IsUploadID(id) {
		return nil, errNoUpload
	}
	u := &upload{server: s, instrument: instrument, id: id}
	data, err := u.read(ctx, wire.UploadInfoKey(s.cfg.Site, instrument, id))
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, errNoUpload
	}
	if err != nil {
		return nil, err
	}
	if u.info, err = wire.Decode[wire.UploadInfo](data); err != nil {
		return nil, fmt.Errorf("upload %s: %w", id, err)
	}
	u.heard = u.info.CreatedAt
	if err := u.readLength(ctx); err != nil {
		return nil, err
	}
	if err := u.list(ctx); err != nil {
		return nil, err
	}
	if time.Now().After(u.expires()) {
		return nil, errNoUpload
	}
	return u, nil
}

// readLength reads the length that was said after the upload had begun.
func (u *upload) readLength(ctx context.Context) error {
	if !u.info.Deferred {
		return nil
	}
	data, err := u.read(ctx, wire.UploadLengthKey(u.server.cfg.Site, u.instrument, u.id))
	if errors.Is(err, objectstore.ErrNotFound) {
		u.unknown = true
		return nil
	}
	if err != nil {
		return err
	}
	said, err := wire.Decode[wire.UploadLength](data)
	u.info.Length, u.unknown = said.Length, false
	return err
}

// setLength notes how long the object is; of several that say it, the first counts.
func (u *upload) setLength(ctx context.Context, length int64) error {
	data, err := wire.Encode(wire.UploadLength{Length: length})
	if err != nil {
		return err
	}
	err = u.put(ctx, wire.UploadLengthKey(u.server.cfg.Site, u.instrument, u.id), data)
	if err != nil && !errors.Is(err, objectstore.ErrExists) {
		return err
	}
	return u.readLength(ctx)
}

// list finds the pieces.
func (u *upload) list(ctx context.Context) error {
	return u.server.cfg.Archive.Request(ctx, "list", 0, func(ctx context.Context) error {
		u.pieces, u.orphans, u.offset, u.isDone = nil, nil, 0, false
		for info, err := range u.server.cfg.Objects.List(ctx, u.prefix(), "") {
			if err != nil {
				return err
			}
			file, ok := wire.ParseUploadKey(info.Key)
			switch {
			case !ok:
				continue
			case file.Done:
				u.isDone, u.offset = true, u.info.Length
			case file.Offset < 0: // length.json comes behind the digits, too
				continue
			case !u.isDone && file.Offset == u.offset:
				u.pieces = append(u.pieces, run{info.Key, file.Offset, info.Size})
				u.offset += info.Size
			default:
				u.orphans = append(u.orphans, run{info.Key, file.Offset, info.Size})
			}
			if info.ModifiedAt.After(u.heard) {
				u.heard = info.ModifiedAt
			}
		}
		if u.isDone { // done.json comes behind the digits
			u.offset = u.info.Length
		}
		return nil
	})
}

func (u *upload) prefix() string { return wire.UploadPrefix(u.server.cfg.Site, u.instrument, u.id) }

// read reads a small file.
func (u *upload) read(ctx context.Context, key string) (data []byte, err error) {
	err = u.server.cfg.Archive.Request(ctx, "get", 0, func(ctx context.Context) error {
		body, _, err := u.server.cfg.Objects.Get(ctx, key, objectstore.All)
		if err != nil {
			return err
		}
		defer body.Close()
		data, err = io.ReadAll(io.LimitReader(body, maxUploadFile))
		return err
	})
	return data, err
}

// put creates a file of the upload, from memory.
func (u *upload) put(ctx context.Context, key string, data []byte) error {
	return u.server.cfg.Archive.Request(ctx, "put", int64(len(data)), func(ctx context.Context) error {
		return u.server.cfg.Objects.Put(ctx, key, bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{CreateOnly: true})
	})
}

// create writes what the upload will be. The id is unique.
func (u *upload) create(ctx context.Context) error {
	data, err := wire.Encode(u.info)
	if err != nil {
		return err
	}
	err = u.put(ctx, wire.UploadInfoKey(u.server.cfg.Site, u.instrument, u.id), data)
	if errors.Is(err, objectstore.ErrExists) {
		return nil // a try whose answer was lost had arrived
	}
	return err
}

// markFinished notes which object the upload became, and removes its bytes.
func (u *upload) markFinished(ctx context.Context, r wire.Record) {
	data, err := wire.Encode(wire.UploadDone{ID: r.ID, Digest: r.Digest})
	if err == nil {
		err = u.put(ctx, wire.UploadDoneKey(u.server.cfg.Site, u.instrument, u.id), data)
	}
	if err != nil && !errors.Is(err, objectstore.ErrExists) {
		// A client that asks again has it made again, and its bytes show that it equals the first.
		u.server.cfg.Logger.Warn("cannot mark an upload in the archive as finished", "instrument", u.instrument, "upload", u.id, "error", err)
		return
	}
	u.remove(ctx, append(u.pieces, u.orphans...))
}

// done reads which object the upload became.
func (u *upload) done(ctx context.Context) (wire.UploadDone, error) {
	data, err := u.read(ctx, wire.UploadDoneKey(u.server.cfg.Site, u.instrument, u.id))
	if err != nil {
		return wire.UploadDone{}, err
	}
	return wire.Decode[wire.UploadDone](data)
}

// checkStands returns nil where the object that the upload became is still in the store, or
// was purged. Errors: errNoUpload where the store lost it, errWaits, of the store.
func (u *upload) checkStands(ctx context.Context, done wire.UploadDone) error {
	cfg := &u.server.cfg
	if u.info.Name == "" {
		stands, known, err := cfg.Archive.Stands(ctx, u.instrument, done.ID, done.Digest)
		switch {
		case err != nil || stands:
			return err
		case !known:
			return errWaits
		}
		return errNoUpload
	}
	claim, _, err := cfg.Names.Lookup(ctx, u.instrument, u.info.Name)
	if err != nil {
		return err
	}
	v, found := claim.Find(done.Digest)
	if !found {
		return errWaits
	}
	stands, err := cfg.Archive.NameStands(ctx, u.instrument, v)
	switch {
	case err != nil || stands:
		return err
	case !v.Announced:
		return errWaits
	}
	return errNoUpload
}

// remove removes pieces; what it leaves the sweep removes.
func (u *upload) remove(ctx context.Context, pieces []run) {
	for _, p := range pieces {
		if err := u.server.cfg.Objects.Delete(ctx, p.key); err != nil {
			u.server.cfg.Logger.Warn("cannot remove pieces of an upload: the sweep will remove them", "instrument", u.instrument, "upload", u.id, "error", err)
			return
		}
	}
}

// terminate removes the upload: from then on there is none.
func (u *upload) terminate(ctx context.Context) error {
	key := wire.UploadInfoKey(u.server.cfg.Site, u.instrument, u.id)
	err := u.server.cfg.Archive.Request(ctx, "delete", 0, func(ctx context.Context) error { return u.server.cfg.Objects.Delete(ctx, key) })
	if err == nil {
		u.remove(ctx, append(append(u.pieces, u.orphans...), run{key: wire.UploadDoneKey(u.server.cfg.Site, u.instrument, u.id)},
			run{key: wire.UploadLengthKey(u.server.cfg.Site, u.instrument, u.id)}))
	}
	return err
}
