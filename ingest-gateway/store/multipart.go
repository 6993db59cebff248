// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nuid"

	"github.com/substorm/substorm/ingest-gateway/intake/memory"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// cleanTimeout is how long cleaning up may take; the archivist's sweep finds
// what is left.
const cleanTimeout = 15 * time.Second

// multipart is an object that goes to the store in parts, to a staging key: its own
// key holds the digest, which is known only at the end. While one part is on
// its way the next one fills; so an object takes two buffers at most.
type multipart struct {
	object *Object
	key    string
	upload objectstore.Upload
	number int
	// inFlight receives the result of the part on its way; nil if there is none.
	inFlight chan error
	// staged: the staging object may exist; completed: it does.
	staged, completed bool
}

func newMultipart(o *Object) *multipart {
	return &multipart{object: o, key: wire.StagingKey(o.archive.cfg.Site, o.instrument.Name, nuid.Next())}
}

// send begins to send a full buffer, which it takes over, once the part before
// it has arrived. After an error the buffer is still the caller's.
func (p *multipart) send(ctx context.Context, b *memory.Buffer, digest wire.Digest) error {
	b.Seal() // while it waits here it could not yield
	if err := p.wait(ctx); err != nil {
		return err
	}
	p.number++
	inFlight := make(chan error, 1)
	p.inFlight = inFlight
	number := p.number
	go func() {
		err := p.part(p.object.ctx, number, b, digest)
		b.Release()
		inFlight <- err
	}()
	return nil
}

// wait waits for the part on its way.
func (p *multipart) wait(ctx context.Context) error {
	if p.inFlight == nil {
		return nil
	}
	select {
	case err := <-p.inFlight:
		p.inFlight = nil
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// part sends one part. Only one call runs at a time.
func (p *multipart) part(ctx context.Context, number int, b *memory.Buffer, digest wire.Digest) error {
	a := p.object.archive
	if p.upload == nil {
		if err := a.MayKeep(); err != nil {
			return err
		}
		err := a.request(ctx, "begin", 0, func(ctx context.Context) error {
			upload, err := a.cfg.Objects.NewUpload(ctx, p.key, objectstore.PutOptions{})
			if err == nil {
				p.upload = upload
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return a.request(ctx, "part", b.Size(), func(ctx context.Context) error {
		return p.upload.Part(ctx, number, b.Reader(), b.Size(), digest)
	})
}

// finish sends the last part and makes the staging object.
func (p *multipart) finish(ctx context.Context, last *memory.Buffer, digest wire.Digest) error {
	if err := p.wait(ctx); err != nil {
		return err
	}
	if last.Size() > 0 {
		p.number++
		if err := p.part(ctx, p.number, last, digest); err != nil {
			return err
		}
	}
	a := p.object.archive
	p.staged = true // from here on it may be, whatever the answer is
	err := a.request(ctx, "complete", 0, func(ctx context.Context) error {
		err := p.upload.Complete(ctx)
		if errors.Is(err, objectstore.ErrNotFound) && p.isThere(ctx) {
			return nil // a try whose answer was lost had arrived
		}
		return err
	})
	p.completed = err == nil
	return err
}

func (p *multipart) isThere(ctx context.Context) bool {
	info, err := p.object.archive.cfg.Objects.Head(ctx, p.key)
	return err == nil && info.Size == p.object.size
}

// copyTo gives the staging object its own key and metadata.
func (p *multipart) copyTo(ctx context.Context, key string, opts objectstore.PutOptions) error {
	a := p.object.archive
	return a.request(ctx, "copy", p.object.size, func(ctx context.Context) error {
		return a.cfg.Objects.Copy(ctx, p.key, key, opts)
	})
}

// clean removes the upload or the staging object. It runs after the object's
// own goroutine is done with it.
func (p *multipart) clean() {
	a := p.object.archive
	ctx, cancel := context.WithTimeout(context.Background(), cleanTimeout)
	defer cancel()
	_ = p.wait(ctx) // soon: its context has ended
	if p.upload == nil {
		return
	}
	var err error
	if !p.completed {
		err = p.upload.Abort(ctx)
	}
	if p.staged {
		err = errors.Join(err, a.cfg.Objects.Delete(ctx, p.key))
	}
	if err != nil {
		a.cfg.Logger.Warn("staging is not cleaned up: the sweep will do it", "key", p.key, "error", err)
	}
}
