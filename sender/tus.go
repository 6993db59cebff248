// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// The bytes that are sent at a time: they double while requests are quick. The gateway
// may keep nothing of a request that falls silent, so the first ones are small.
const (
	firstChunk = 1 << 20
	maxChunk   = 32 << 20
	quickChunk = 5 * time.Second
)

// finishRate is what a gateway may take to put a whole upload into the archive
// before it counts as silent, in bytes a second.
const finishRate = 8 << 20

// resumption is what is known of an object's upload, from one try to the next.
type resumption struct {
	// keep, if set, writes it down for the next run; "" forgets it.
	keep func(text string) error

	mu sync.Mutex
	at uploadAt
	// arrived is the most that a server said it has.
	arrived int64
}

// uploadAt is an upload that was begun: any gateway can continue it.
type uploadAt struct {
	// Path of the upload's URL.
	Path string `json:"path"`
	// Target is where it was begun, and Name what the object is called.
	Target string `json:"target"`
	Name   string `json:"name,omitempty"`
	// SHA256 of the object.
	SHA256 string `json:"sha256"`
}

func newResumption(text string, keep func(string) error) *resumption {
	r := &resumption{keep: keep}
	if json.Unmarshal([]byte(text), &r.at) != nil {
		r.at = uploadAt{}
	}
	return r
}

// path returns where the upload of that object is; "" if none was begun.
func (r *resumption) path(of uploadAt) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of.Path = r.at.Path; r.at != of {
		return ""
	}
	return of.Path
}

// advance reports whether servers have more than they had before.
func (r *resumption) advance(offset int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	more := offset > r.arrived
	r.arrived = max(r.arrived, offset)
	return more
}

// most is the most that a server said it has, in bytes.
func (r *resumption) most() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.arrived
}

// set notes where the upload is; the zero value forgets it.
func (r *resumption) set(at uploadAt) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at == (uploadAt{}) {
		r.arrived = 0
	}
	if r.at = at; r.keep == nil {
		return nil
	}
	if at == (uploadAt{}) {
		return r.keep("")
	}
	text, err := json.Marshal(at)
	if err != nil {
		return err
	}
	return r.keep(string(text))
}

// upload sends a large object by tus, from where an earlier try ended. First
// begins it, rest follows.
func (t *transfer) upload(ctx context.Context, first []byte, rest io.Reader) verdict {
	digest := sha256.New()
	digest.Write(first)
	n, err := io.Copy(digest, rest)
	if err != nil {
		return verdict{local: true, err: err}
	}
	t.digest, t.size = sum(digest), int64(len(first))+n
	if err := t.item.checkUnchanged(t.digest); err != nil {
		return verdict{local: true, err: err}
	}
	v := t.resume(ctx)
	v.digest, v.bytes = t.digest, t.size
	return v
}

// resume finds or begins the upload, and sends what is missing.
func (t *transfer) resume(ctx context.Context) verdict {
	is := uploadAt{Target: t.base.Path, Name: t.name, SHA256: t.digest.String()}
	path := t.item.resumption.path(is)
	if path != "" {
		offset, v, found := t.ask(ctx, path)
		switch {
		case v.receipted || v.err != nil:
			return v
		case found:
			progress := t.item.resumption.advance(offset)
			v := t.patches(ctx, path, offset)
			v.progress = v.progress || progress
			return v
		}
	}
	a, err := t.create(ctx)
	if err != nil || a.status != http.StatusCreated {
		return t.judge(a, err)
	}
	location, err := url.Parse(a.header.Get("Location"))
	if err != nil || location.Path == "" {
		return verdict{err: fmt.Errorf("the server begins an upload at %.200q: is it a gateway?", a.header.Get("Location"))}
	}
	is.Path = t.base.ResolveReference(location).Path
	if err := t.item.resumption.set(is); err != nil {
		return verdict{local: true, err: err}
	}
	return t.patches(ctx, is.Path, 0)
}

// ask asks how far the upload came. If all has arrived, the answer is the receipt. Not found: it has to begin again.
func (t *transfer) ask(ctx context.Context, path string) (offset int64, v verdict, found bool) {
	t.pulse.grant(t.finishTime())
	a, err := t.do(ctx, http.MethodHead, path, t.header(), nil, 0)
	if err != nil {
		return 0, t.judge(a, err), false
	}
	switch a.status {
	case http.StatusOK:
		if offset, err = offsetIn(a, t.size); err == nil && offset == t.size {
			v = t.finished(t.judge(a, nil))
		}
		if err != nil {
			v.err = err
		}
		return offset, v, true
	case http.StatusNotFound, http.StatusGone, http.StatusBadRequest: // its bytes are not ours, or it is no more
		return 0, verdict{}, false
	case http.StatusConflict: // an answer to HEAD has no document
		v = verdict{refused: wire.CauseNameConflict, advised: true, err: fmt.Errorf(
			"refused %s: other bytes have this name, or it is a folder of other names, or lies below the name of an object: "+
				"choose another name; in the first case, archive.versions: Keep helps, too", wire.CauseNameConflict)}
		return 0, t.broken(v), false
	}
	return 0, t.judge(a, nil), false
}

func (t *transfer) header() http.Header { return http.Header{"Tus-Resumable": {"1.0.0"}} }

func (t *transfer) create(ctx context.Context) (answer, error) {
	h := t.header()
	h.Set("Upload-Length", strconv.FormatInt(t.size, 10))
	h.Set("Repr-Digest", reprDigest(t.digest))
	if t.name != "" {
		h.Set("Upload-Metadata", "filename "+base64.StdEncoding.EncodeToString([]byte(t.name)))
	}
	return t.do(ctx, http.MethodPost, t.base.Path, h, nil, 0)
}

// patches sends all bytes from an offset on.
func (t *transfer) patches(ctx context.Context, path string, offset int64) verdict {
	body, err := t.item.open()
	if err != nil {
		return verdict{local: true, err: err}
	}
	defer body.Close()
	if err := skip(body, offset); err != nil {
		return verdict{local: true, err: err}
	}
	progress := false
	for chunk := int64(firstChunk); ; {
		n := min(chunk, t.size-offset)
		last := offset+n == t.size
		begin := time.Now()
		a, err := t.patch(ctx, path, offset, n, body, last)
		v := t.judgePatch(a, err, &offset, n, last)
		v.progress = v.progress || progress
		if v.receipted || v.err != nil {
			return v
		}
		progress = t.item.resumption.advance(offset) || progress
		if time.Since(begin) < quickChunk {
			chunk = min(2*chunk, maxChunk)
		} else {
			chunk = max(chunk/2, firstChunk)
		}
	}
}

func (t *transfer) patch(ctx context.Context, path string, offset, n int64, body io.Reader, last bool) (answer, error) {
	h := t.header()
	h.Set("Content-Type", "application/offset+octet-stream")
	h.Set("Upload-Offset", strconv.FormatInt(offset, 10))
	grant := time.Duration(0)
	if last {
		grant = t.finishTime()
	}
	t.pulse.grant(grant)
	// Not the file itself: net/http would close it.
	return t.do(ctx, http.MethodPatch, path, h, io.LimitReader(body, n), n)
}

// finishTime is what a gateway may take for the whole upload's receipt.
func (t *transfer) finishTime() time.Duration {
	return time.Duration(t.size) * time.Second / finishRate
}

// judgePatch interprets the answer to a PATCH; without an error and a receipt the next one is due.
func (t *transfer) judgePatch(a answer, err error, offset *int64, n int64, last bool) verdict {
	switch {
	case err == nil && a.status == http.StatusNoContent && last:
		return t.finished(t.judge(a, nil))
	case err == nil && a.status == http.StatusNoContent:
		at, err := offsetIn(a, t.size)
		if err == nil && at != *offset+n {
			err = fmt.Errorf("the server has %d bytes and should have %d: is it a gateway?", at, *offset+n)
		}
		*offset = at
		return verdict{err: err}
	case err == nil && overtaken(a):
		return verdict{err: errors.New("another connection has sent the same bytes: asking for the offset")}
	}
	if err == nil && a.status == http.StatusNotFound {
		return t.forget(verdict{err: errors.New("the upload no longer exists: starting it again")})
	}
	v := t.broken(t.judge(a, err)) // what came of it is kept: the next try asks
	v.whole = last && a.wrote
	if v.refused != "" {
		t.sender.lost(a.taken)
	}
	return v
}

// overtaken reports whether the same bytes came by another connection, such as one of
// an earlier run whose last bytes were still on their way. A name's conflict is
// another matter.
func overtaken(a answer) bool {
	return a.status == http.StatusConflict && (a.header.Get("Upload-Offset") != "" || refusal(a).refused == wire.CauseBadRequest)
}

// finished is the end of an upload: with a receipt there is nothing to go on with.
func (t *transfer) finished(v verdict) verdict {
	if v.receipted {
		_ = t.item.resumption.set(uploadAt{}) // else the queue's entry takes it along
		v.whole = true
	}
	return v
}

// broken starts over after a refusal that another try of the same upload cannot change.
func (t *transfer) broken(v verdict) verdict {
	if v.refused == wire.CauseNameConflict {
		v.err = fmt.Errorf("%s: %w", t.name, v.err)
	}
	if v.refused == wire.CauseDigestMismatch || permanent[v.refused] {
		return t.forget(v)
	}
	return v
}

func (t *transfer) forget(v verdict) verdict {
	if err := t.item.resumption.set(uploadAt{}); err != nil {
		return verdict{local: true, err: err}
	}
	return v
}

func offsetIn(a answer, size int64) (int64, error) {
	offset, err := strconv.ParseInt(a.header.Get("Upload-Offset"), 10, 64)
	if err != nil || offset < 0 || offset > size {
		return 0, fmt.Errorf("the server answers %d with Upload-Offset %.40q: is it a gateway?", a.status, a.header.Get("Upload-Offset"))
	}
	return offset, nil
}

// skip passes over what the server has.
func skip(body io.Reader, n int64) error {
	if s, ok := body.(io.Seeker); ok {
		_, err := s.Seek(n, io.SeekStart)
		return err
	}
	_, err := io.CopyN(io.Discard, body, n)
	return err
}
