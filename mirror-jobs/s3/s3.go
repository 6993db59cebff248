// SPDX-License-Identifier: Apache-2.0

// Package s3 gets files to a partner's bucket, each as an object with its digest as a checksum:
// the server refuses other bytes.
package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
)

const (
	maxFiles = 10_000
	maxBytes = 1 << 30
	// partSize of a multipart upload, in bytes; an object that is not larger is put at once.
	partSize = 16 << 20
	// digestName and modifiedName are the metadata by which an object is known again.
	digestName   = "Substorm-Sha256"
	modifiedName = "Substorm-Received-At"
)

// Config says where to.
type Config struct {
	Store objectstore.Store
	// Endpoint and Bucket are for errors.
	Endpoint, Bucket string
	// Prefix of the keys, without a slash at its end; empty: none.
	Prefix string
	// Connections are how many objects are sent at a time.
	Connections int
	// Moved is called with the number of bytes before they are sent, and after they were read back, and returns when more may be; nil:
	// there is no limit.
	Moved func(bytes int)
}

// Mover is a push.Mover.
type Mover struct{ cfg Config }

// New returns a mover.
func New(cfg Config) *Mover {
	cfg.Connections = max(1, cfg.Connections)
	if cfg.Moved == nil {
		cfg.Moved = func(int) {}
	}
	return &Mover{cfg}
}

// Most implements push.Mover.
func (m *Mover) Most() (files int, bytes int64) { return maxFiles, maxBytes }

func (m *Mover) key(path string) string {
	if m.cfg.Prefix == "" {
		return path
	}
	return m.cfg.Prefix + "/" + path
}

// each calls do for files, some at a time.
func (m *Mover) each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(m.cfg.Connections)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// Deliver implements push.Mover.
func (m *Mover) Deliver(ctx context.Context, files []push.File, anew bool, ended func(int, error)) error {
	var mu sync.Mutex
	return m.each(ctx, len(files), func(ctx context.Context, i int) error {
		err := m.deliver(ctx, files[i], anew)
		var here *hereError
		switch {
		case errors.Is(err, push.ErrThere), errors.Is(err, push.ErrAside):
		case errors.As(err, &here) && (errors.Is(err, objectpath.ErrDamaged) || errors.Is(err, objectstore.ErrNotFound)):
		case errors.As(err, &here):
			return here.error
		case err != nil:
			return m.problem(err)
		}
		mu.Lock()
		defer mu.Unlock()
		ended(i, err)
		return nil
	})
}

// hereError is one of the archive, and none of the partner.
type hereError struct{ error }

// Unwrap returns it.
func (e *hereError) Unwrap() error { return e.error }

func (m *Mover) deliver(ctx context.Context, f push.File, anew bool) error {
	if f.Size > partSize && !anew { // it is worth the question
		switch why, err := m.differs(ctx, f, false); {
		case err != nil:
			return err
		case why == "":
			return push.ErrThere
		}
	}
	if f.Aside == "" || anew {
		return m.put(ctx, f)
	}
	isAside, err := m.setAside(ctx, f)
	if err == nil {
		err = m.put(ctx, f)
	}
	if err == nil && isAside {
		err = push.ErrAside
	}
	return err
}

// put sends a file.
func (m *Mover) put(ctx context.Context, f push.File) error {
	body, err := f.Open(ctx)
	if err != nil {
		return &hereError{err}
	}
	defer body.Close()
	opts := objectstore.PutOptions{ContentType: f.MediaType, Metadata: map[string]string{digestName: f.Digest.String(), modifiedName: wire.FormatTime(f.Modified)}}
	if f.Size > partSize {
		return m.upload(ctx, f, body, opts)
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return &hereError{err}
	}
	opts.Digest = f.Digest
	return m.cfg.Store.Put(ctx, m.key(f.Path), m.paced(f, data), int64(len(data)), opts)
}

// setAside copies another object that lies under the path of a file, and says whether there is one.
func (m *Mover) setAside(ctx context.Context, f push.File) (bool, error) {
	info, err := m.cfg.Store.Head(ctx, m.key(f.Path))
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case info.Size == 0 || info.Size == f.Size && info.Metadata[digestName] == f.Digest.String():
		return false, nil
	}
	return true, m.cfg.Store.Copy(ctx, m.key(f.Path), m.key(f.Path+f.Aside), objectstore.PutOptions{ContentType: info.ContentType, Metadata: info.Metadata})
}

// upload sends a large object in parts.
func (m *Mover) upload(ctx context.Context, f push.File, body io.Reader, opts objectstore.PutOptions) error {
	u, err := m.cfg.Store.NewUpload(ctx, m.key(f.Path), opts)
	if err != nil {
		return err
	}
	part := make([]byte, partSize)
	for number := 1; ; number++ {
		n, err := io.ReadFull(body, part)
		last := errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
		if err != nil && !last {
			return &hereError{errors.Join(err, u.Abort(context.WithoutCancel(ctx)))}
		}
		if n > 0 {
			if err := u.Part(ctx, number, m.paced(f, part[:n]), int64(n), sha256.Sum256(part[:n])); err != nil {
				return errors.Join(err, u.Abort(context.WithoutCancel(ctx)))
			}
		}
		if last {
			return u.Complete(ctx)
		}
	}
}

// Verify implements push.Mover.
func (m *Mover) Verify(ctx context.Context, files []push.File, digest bool, differs func(int, string)) error {
	var mu sync.Mutex
	return m.each(ctx, len(files), func(ctx context.Context, i int) error {
		why, err := m.differs(ctx, files[i], digest)
		if err != nil {
			return m.problem(err)
		}
		if why != "" {
			mu.Lock()
			defer mu.Unlock()
			differs(i, why)
		}
		return nil
	})
}

// differs says what is wrong with an object at the partner; empty: nothing.
func (m *Mover) differs(ctx context.Context, f push.File, digest bool) (why string, err error) {
	if !digest {
		info, err := m.cfg.Store.Head(ctx, m.key(f.Path))
		return compare(info, err, f)
	}
	body, info, err := m.cfg.Store.Get(ctx, m.key(f.Path), objectstore.All)
	if why, err = compare(info, err, f); why != "" || err != nil {
		return why, err
	}
	defer body.Close()
	h := sha256.New()
	if _, err := io.CopyBuffer(io.MultiWriter(h, moved(m.cfg.Moved)), body, make([]byte, pacedBytes)); err != nil {
		return "", fmt.Errorf("get %s: %w: %w", m.key(f.Path), objectstore.ErrUnavailable, err)
	}
	if is := wire.Digest(h.Sum(nil)); is != f.Digest {
		return fmt.Sprintf("its SHA-256 is %s, and should be %s", is, f.Digest), nil
	}
	return "", nil
}

func compare(info objectstore.Info, err error, f push.File) (string, error) {
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return "the partner's bucket has no such object", nil
	case err != nil:
		return "", err
	case info.Size != f.Size:
		return fmt.Sprintf("it has %d bytes, and should have %d", info.Size, f.Size), nil
	}
	if is := info.Metadata[digestName]; is != "" && is != f.Digest.String() {
		return "it is another object: its metadata has SHA-256 " + is, nil
	}
	return "", nil
}

// Has implements push.Mover.
func (m *Mover) Has(ctx context.Context, paths []string) ([]string, error) {
	var mu sync.Mutex
	var there []string
	err := m.each(ctx, len(paths), func(ctx context.Context, i int) error {
		_, err := m.cfg.Store.Head(ctx, m.key(paths[i]))
		if errors.Is(err, objectstore.ErrNotFound) {
			return nil
		}
		if err != nil {
			return m.problem(err)
		}
		mu.Lock()
		defer mu.Unlock()
		there = append(there, paths[i])
		return nil
	})
	return there, err
}

// MayRemove implements push.Mover: a server says that once it is asked to.
func (m *Mover) MayRemove(context.Context, []string) error { return nil }

// Remove implements push.Mover.
func (m *Mover) Remove(ctx context.Context, paths []string) error {
	return m.each(ctx, len(paths), func(ctx context.Context, i int) error {
		if err := m.cfg.Store.Delete(ctx, m.key(paths[i])); err != nil {
			return m.problem(err)
		}
		return nil
	})
}

// problem says why a bucket takes nothing: all that its store says is about the partner, but that a run was stopped.
func (m *Mover) problem(err error) error {
	reason, answered := wire.MirrorReasonProtocol, false
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, objectstore.ErrFull):
		reason, answered = wire.MirrorReasonPartnerFull, true
	case errors.Is(err, objectstore.ErrAccessDenied):
		reason = wire.MirrorReasonAccessDenied
		err = fmt.Errorf("bucket %q of %s: %w: correct the key in the Secret of spec.s3.credentialsSecretRef, or let its user list, read, write and delete there",
			m.cfg.Bucket, m.cfg.Endpoint, err)
	case errors.Is(err, objectstore.ErrNoBucket):
		answered = true
		err = fmt.Errorf("bucket %q of %s: %w: create it; or, where it is the one of spec.s3, correct spec.s3.bucket", m.cfg.Bucket, m.cfg.Endpoint, err)
	case errors.Is(err, objectstore.ErrDigest):
		reason, answered = wire.MirrorReasonDigestMismatch, true
	case errors.Is(err, objectstore.ErrNoS3):
	case errors.Is(err, objectstore.ErrUnavailable):
		reason = wire.MirrorReasonUnreachable
	}
	return &push.Problem{Reason: reason, Answered: answered, Err: err}
}

// paced is a body that is read no faster than bytes may be moved.
type paced struct {
	io.ReadSeeker
	moved func(bytes int)
	file  *push.Moving
}

func (m *Mover) paced(f push.File, data []byte) paced {
	return paced{bytes.NewReader(data), m.cfg.Moved, f.Moving}
}

// Read implements io.Reader.
func (p paced) Read(b []byte) (int, error) {
	n, err := p.ReadSeeker.Read(b[:min(len(b), pacedBytes)])
	p.moved(n)
	p.file.Move(int64(n))
	return n, err
}

// pacedBytes are moved at once of what is paced: few, so that no server takes a slow connection for one that stands still.
const pacedBytes = 4 << 10

// moved counts what is written to it.
type moved func(bytes int)

// Write implements io.Writer.
func (m moved) Write(b []byte) (int, error) {
	m(len(b))
	return len(b), nil
}
