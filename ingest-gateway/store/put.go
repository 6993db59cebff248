// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// brisk is the rate, in bytes a second, that a store is given beside ShortWait.
const brisk = 4 << 20

// store puts the object under its own key and returns its notice. A key without a name holds the
// millisecond of receipt: if equal bytes arrived in the same one, through any gateway, the later
// object takes the next. Error ErrExists: another object has the key of the name.
func (o *Object) store(ctx context.Context, n wire.Notice) (wire.Notice, error) {
	for {
		err := o.put(ctx, n, true)
		if errors.Is(err, objectstore.ErrExists) {
			ours, lookUpErr := o.archive.isStored(ctx, n)
			if lookUpErr != nil || ours {
				return n, lookUpErr
			}
			if n.Name == "" {
				n = o.notice(n.ReceivedAt.Add(time.Millisecond), n.Digest)
				continue
			}
		}
		return n, err
	}
}

// put sends the object, once: createOnly if its key must be free.
func (o *Object) put(ctx context.Context, n wire.Notice, createOnly bool) error {
	a := o.archive
	opts, err := putOptions(n, createOnly)
	if err != nil {
		return err
	}
	if o.parts == nil {
		return a.request(ctx, "put", o.size, func(ctx context.Context) error {
			return a.cfg.Objects.Put(ctx, n.Key, o.buffer.Reader(), o.size, opts)
		})
	}
	if !o.parts.completed {
		if err := o.parts.finish(ctx, o.buffer, o.part.digest()); err != nil {
			return err
		}
	}
	return o.parts.copyTo(ctx, n.Key, opts)
}

// limit bounds how long the store may take where the object may go elsewhere.
func (o *Object) limit(ctx context.Context, d decision) (context.Context, context.CancelFunc) {
	if d.otherwise == nowhere {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, o.archive.shortTimeout(o.size))
}

// shortTimeout is how long the store, or a peer, gets for so many bytes where something else can be done.
func (a *Archive) shortTimeout(size int64) time.Duration {
	return a.cfg.ShortWait + time.Duration(size)*time.Second/brisk
}

func (a *Archive) putPack(ctx context.Context, key string, body io.ReadSeeker, size int64, digest wire.Digest, members int) error {
	return a.putPackOf(ctx, key, func() io.ReadSeekCloser { return keptOpen{body} }, size, digest, members)
}

// keptOpen is a reader that its caller closes, if at all.
type keptOpen struct{ io.ReadSeeker }

func (keptOpen) Close() error { return nil }

// putPackOf stores a pack; open is called for each try.
func (a *Archive) putPackOf(ctx context.Context, key string, open func() io.ReadSeekCloser, size int64, digest wire.Digest, members int) error {
	opts := objectstore.PutOptions{
		ContentType: wire.MediaTypePack, Digest: digest, CreateOnly: true,
		Metadata: map[string]string{wire.MetadataFormat: strconv.Itoa(wire.Format), wire.MetadataMembers: strconv.Itoa(members)},
	}
	err := a.request(ctx, "pack", size, func(ctx context.Context) error {
		body := open()
		defer body.Close()
		err := a.cfg.Objects.Put(ctx, key, body, size, opts)
		if errors.Is(err, objectstore.ErrExists) {
			return nil // a try whose answer was lost had arrived: the key is unique
		}
		return err
	})
	if err == nil {
		a.metrics.packs.Inc()
		a.metrics.packed.Add(float64(members))
	}
	return err
}

func putOptions(n wire.Notice, createOnly bool) (objectstore.PutOptions, error) {
	if n.Looks != "" && !wire.MetadataFits(n) { // manifests have it
		n.Looks = ""
	}
	if n.Origin != nil && !wire.MetadataFits(n) {
		n = withoutPath(n)
	}
	metadata, err := wire.ObjectMetadata(n)
	if err != nil {
		return objectstore.PutOptions{}, fmt.Errorf("metadata of %s: %w", n.Key, err)
	}
	return objectstore.PutOptions{
		ContentType: n.MediaType, Metadata: metadata, Digest: n.Digest, CreateOnly: createOnly,
	}, nil
}

// isStored says whether the object under the notice's key is the notice's object: a try whose
// answer was lost had arrived.
func (a *Archive) isStored(ctx context.Context, n wire.Notice) (bool, error) {
	there, err := a.lookUp(ctx, n)
	return err == nil && sameObject(there, n), err
}

// lookUp returns the notice of the object under a notice's key; the zero Notice if Substorm did not
// write it. Errors: objectstore.ErrNotFound, or of the store.
func (a *Archive) lookUp(ctx context.Context, n wire.Notice) (there wire.Notice, err error) {
	info, err := a.head(ctx, n.Key)
	if err != nil {
		return wire.Notice{}, err
	}
	if there, err = wire.NoticeFromMetadata(n.Key, info.Metadata); err != nil {
		a.cfg.Logger.Warn("the key is taken by another object; using the next key",
			"instrument", n.Instrument, "key", n.Key, "error", err)
		return wire.Notice{}, nil
	}
	return there, nil
}

// sameObject says whether a and b are one object, whichever gateway stored it.
func sameObject(a, b wire.Notice) bool {
	return a.Gateway == b.Gateway && a.Incarnation == b.Incarnation && a.ReceivedAt.Equal(b.ReceivedAt) && a.Source == b.Source
}
