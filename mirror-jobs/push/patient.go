// SPDX-License-Identifier: Apache-2.0

package push

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/retry"
)

const (
	// defaultPatience is the default of Config.
	defaultPatience = time.Minute
	// firstPause and lastPause are those between two tries to read from the object store.
	firstPause, lastPause = 100 * time.Millisecond, 5 * time.Second
)

// patient is the object store of the archive: if it goes away, a reader waits for it and continues behind the last byte. Without that, a
// store that is away for a moment now and then would end each run before a batch of thousands of files is together.
type patient struct {
	objectstore.Store
	patience time.Duration
	log      *slog.Logger
}

// Get implements objectstore.Store.
func (p *patient) Get(ctx context.Context, key string, r objectstore.Range) (io.ReadCloser, objectstore.Info, error) {
	b := &patientBody{of: p, ctx: ctx, key: key, rest: r, came: time.Now()}
	info, err := b.open()
	for err != nil && b.wait(err) {
		info, err = b.open()
	}
	if err != nil {
		return nil, objectstore.Info{}, err
	}
	return b, info, nil
}

// patientBody is an object on its way.
type patientBody struct {
	of  *patient
	ctx context.Context
	key string
	// rest is what has not come yet, and left how many bytes that are, once the store has answered.
	rest objectstore.Range
	left int64
	// body is nil where the store has to be asked again.
	body io.ReadCloser
	// came is when the last byte did, and pause the one before the next try.
	came  time.Time
	pause time.Duration
}

func (b *patientBody) open() (objectstore.Info, error) {
	body, info, err := b.of.Store.Get(b.ctx, b.key, b.rest)
	switch {
	case err != nil:
		return info, err
	case b.rest.Length > 0:
		b.left = b.rest.Length
	case b.rest.Offset == 0:
		b.left = info.Size
	}
	b.body = body
	return info, nil
}

// wait says, after a pause, whether to ask again after an error.
func (b *patientBody) wait(err error) bool {
	if !errors.Is(err, objectstore.ErrUnavailable) || b.ctx.Err() != nil {
		return false
	}
	b.pause = min(max(firstPause, 2*b.pause), lastPause)
	if time.Since(b.came)+b.pause > b.of.patience {
		return false
	}
	b.of.log.Debug("the object store does not answer", "key", b.key, "error", err, "again", b.pause)
	return retry.Sleep(b.ctx, b.pause)
}

// Read implements io.Reader.
func (b *patientBody) Read(p []byte) (int, error) {
	for {
		var n int
		var err error
		switch {
		case b.body != nil:
			n, err = b.body.Read(p)
			b.advance(int64(n))
		case b.left <= 0: // the end went missing, and no byte
			return 0, io.EOF
		default:
			_, err = b.open()
		}
		switch {
		case err == nil && (n > 0 || len(p) == 0):
			return n, nil
		case err == nil:
			continue
		case errors.Is(err, io.EOF) || !errors.Is(err, objectstore.ErrUnavailable):
			return n, err
		}
		_ = b.Close()
		if n > 0 {
			return n, nil
		}
		if !b.wait(err) {
			return 0, err
		}
	}
}

// advance notes that some bytes came.
func (b *patientBody) advance(n int64) {
	if n <= 0 {
		return
	}
	b.came, b.pause = time.Now(), 0
	b.left -= n
	b.rest.Offset += n
	if b.rest.Length > 0 {
		b.rest.Length -= n
	}
}

// Close implements io.Closer.
func (b *patientBody) Close() error {
	if b.body == nil {
		return nil
	}
	body := b.body
	b.body = nil
	return body.Close()
}
