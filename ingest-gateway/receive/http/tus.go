// SPDX-License-Identifier: Apache-2.0

package http

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/substorm/substorm/ingest-gateway/store"
	"github.com/substorm/substorm/internal/wire"
)

// The protocol is tus 1.0.0 (tus.io/protocols/resumable-upload) with the
// extensions creation, creation-defer-length, creation-with-upload, expiration, checksum and termination.
const (
	headerResumable = "Tus-Resumable"
	headerOffset    = "Upload-Offset"
	headerLength    = "Upload-Length"
	headerDefer     = "Upload-Defer-Length"
	tusVersion      = "1.0.0"
	tusExtensions   = "creation,creation-defer-length,creation-with-upload,expiration,checksum,termination"
	offsetStream    = "application/offset+octet-stream"
)

// method is the request's, or what it says instead where its own cannot be sent.
func (q *request) method() string {
	if override := q.r.Header.Get("X-HTTP-Method-Override"); override != "" && q.r.Method == http.MethodPost {
		return strings.ToUpper(override)
	}
	return q.r.Method
}

// describe answers OPTIONS.
func (q *request) describe() {
	h := q.w.Header()
	h.Set(headerResumable, tusVersion)
	h.Set("Tus-Version", tusVersion)
	h.Set("Tus-Extension", tusExtensions)
	h.Set("Tus-Max-Size", strconv.FormatInt(q.limit(), 10))
	h.Set("Tus-Checksum-Algorithm", "sha1,sha256")
	q.w.WriteHeader(http.StatusNoContent)
}

// routeUpload answers for an upload's own path.
func (q *request) routeUpload(method, id string) {
	h := q.w.Header()
	h.Set(headerResumable, tusVersion)
	h.Set("Cache-Control", "no-store")
	if q.r.Header.Get(headerResumable) != tusVersion {
		h.Set("Tus-Version", tusVersion)
		q.failUpload(http.StatusPreconditionFailed, wire.CauseBadRequest, fmt.Errorf("%s must be %s", headerResumable, tusVersion))
		return
	}
	if method != http.MethodHead && method != http.MethodPatch && method != http.MethodDelete {
		q.notAllowed("HEAD, PATCH, DELETE, OPTIONS")
		return
	}
	u, err := q.server.openUpload(q.server.ctx, q.name(), id)
	if err != nil {
		q.failUploadBy(err)
		return
	}
	switch method {
	case http.MethodHead:
		q.tellUpload(u)
	case http.MethodPatch:
		q.patchUpload(u)
	default:
		q.terminateUpload(u)
	}
}

// failUpload answers that an upload goes no further; what has arrived of it stays.
func (q *request) failUpload(status int, cause wire.Cause, err error) {
	q.server.cfg.Refusals.Say(q.name(), cause, q.source, 0, err)
	v := verdict{status: status}
	if status == http.StatusServiceUnavailable {
		v.retryAfter, err = retryAway, errors.New("the bytes sent are not safe here: ask for the offset (HEAD), and go on from there")
	}
	q.answerProblem(v, cause, q.r.URL.Path+": "+err.Error())
}

// failUploadBy sorts an error of an upload.
func (q *request) failUploadBy(err error) {
	switch {
	case errors.Is(err, errNoUpload):
		q.failUpload(http.StatusNotFound, wire.CauseBadRequest, err)
	case errors.Is(err, errMoved):
		q.failUpload(http.StatusConflict, wire.CauseBadRequest, err)
	default:
		q.failUpload(http.StatusServiceUnavailable, store.CauseOf(err), err)
	}
}

// createUpload answers the POST that begins an upload, and may bring its first bytes.
func (q *request) createUpload() {
	h := q.w.Header()
	h.Set(headerResumable, tusVersion)
	if q.r.Header.Get(headerResumable) != tusVersion {
		h.Set("Tus-Version", tusVersion)
		q.failUpload(http.StatusPreconditionFailed, wire.CauseBadRequest, fmt.Errorf("%s must be %s", headerResumable, tusVersion))
		return
	}
	info, err := q.readUploadHeader()
	if err != nil {
		q.failUpload(http.StatusBadRequest, wire.CauseBadRequest, err)
		return
	}
	if info.Length == 0 && !info.Deferred {
		q.failUpload(http.StatusBadRequest, wire.CauseEmpty, errNoBytes)
		return
	}
	if cause, err := q.meets(q.conditions(), info.Name, info.Digest); cause != "" {
		q.refuseUnread(cause, err)
		return
	}
	if info.Length > q.limit() {
		q.failUpload(http.StatusRequestEntityTooLarge, wire.CauseObjectTooLarge, fmt.Errorf("the upload has %d bytes, more than the limit of %d", info.Length, q.limit()))
		return
	}
	if !q.mayBegin() {
		return
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	u := &upload{server: q.server, instrument: q.name(), id: hex.EncodeToString(id), info: info, unknown: info.Deferred, heard: info.CreatedAt}
	if err := u.create(q.server.ctx); err != nil {
		q.failUploadBy(err)
		return
	}
	q.server.metrics.uploads.WithLabelValues(q.name(), "created").Inc()
	h.Set("Location", wire.UploadsFolder+"/"+u.id) // of the folder to which it was sent, right below a path prefix of a proxy, too
	if q.r.Header.Get("Content-Type") == offsetStream {
		q.takeBytes(u, http.StatusCreated)
		return
	}
	q.answerUpload(http.StatusCreated, u)
}

// readUploadHeader reads what the request that begins an upload says of it.
func (q *request) readUploadHeader() (wire.UploadInfo, error) {
	info := wire.UploadInfo{
		Metadata: q.r.Header.Get("Upload-Metadata"), CreatedAt: time.Now().UTC(), ExpiryMillis: q.listener.UploadExpiry.Milliseconds(),
	}
	if q.r.Header.Get("Upload-Concat") != "" {
		return info, errors.New("Upload-Concat is not supported: send the object as one upload")
	}
	if err := checkConditions(q.r.Header); err != nil {
		return info, err
	}
	info.NoneMatch, info.Match = strings.Join(q.r.Header.Values(headerNoneMatch), ","), strings.Join(q.r.Header.Values(headerMatch), ",")
	if n := len(info.NoneMatch) + len(info.Match); n > maxUploadMetadata {
		return info, fmt.Errorf("%s and %s have %d bytes, more than the limit of %d", headerNoneMatch, headerMatch, n, maxUploadMetadata)
	}
	said := q.r.Header.Get(headerLength)
	deferred := q.r.Header.Get(headerDefer)
	switch {
	case deferred == "":
		var err error
		if info.Length, err = parseLength(said); err != nil {
			return info, err
		}
	case deferred != "1" || said != "":
		return info, fmt.Errorf("%s must be 1, and excludes %s", headerDefer, headerLength)
	default:
		info.Deferred = true
	}
	metadata, err := parseUploadMetadata(info.Metadata)
	if err != nil {
		return info, err
	}
	if info.Name = metadata["filename"]; info.Name != "" {
		if err := wire.CheckUploadName(info.Name); err != nil {
			return info, fmt.Errorf("Upload-Metadata: %w", err)
		}
	}
	if info.MediaType, err = mediaTypeOf(http.Header{"Content-Type": {metadata["filetype"]}}); err != nil {
		return info, fmt.Errorf("Upload-Metadata: %w", err)
	}
	wanted, err := digestsOf(http.Header{"Repr-Digest": q.r.Header.Values("Repr-Digest")})
	if digest, found := wanted.sha256(); found {
		info.Digest = &digest
	}
	return info, err
}

// errNoBytes: an upload of no bytes is lawful, and the archive keeps no object without a byte.
var errNoBytes = errors.New("an object has at least one byte: leave empty files out")

// parseLength reads Upload-Length.
func parseLength(said string) (int64, error) {
	length, err := digits(said)
	if err != nil {
		return 0, fmt.Errorf("%s %.40q is not a number of bytes; if the length is not known yet, send %s: 1", headerLength, said, headerDefer)
	}
	return length, nil
}

// digits reads a number of bytes, which has no sign.
func digits(said string) (int64, error) {
	n, err := strconv.ParseUint(said, 10, 63)
	return int64(n), err
}

// maxUploadMetadata bounds Upload-Metadata, and the conditions of an upload, in bytes: info.json keeps both.
const maxUploadMetadata = 4 << 10

// parseUploadMetadata reads the header Upload-Metadata: pairs of a key and a
// value in base64, apart by commas.
func parseUploadMetadata(header string) (map[string]string, error) {
	said := map[string]string{}
	if header == "" {
		return said, nil
	}
	if len(header) > maxUploadMetadata {
		return nil, fmt.Errorf("Upload-Metadata has %d bytes, more than the limit of %d", len(header), maxUploadMetadata)
	}
	for pair := range strings.SplitSeq(header, ",") {
		key, coded, _ := strings.Cut(strings.TrimSpace(pair), " ")
		value, err := base64.StdEncoding.DecodeString(strings.TrimSpace(coded))
		if _, twice := said[key]; err != nil || key == "" || twice {
			return nil, fmt.Errorf("Upload-Metadata: %.100q must be a key, used once, and its value in base64", pair)
		}
		said[key] = string(value)
	}
	return said, nil
}

// patchConditions are those that a PATCH has of its own, of the object's name as all are. Other requests have none: POST's
// are the upload's, and HEAD changes no name.
func (q *request) patchConditions() conditions {
	if q.method() != http.MethodPatch {
		return nil
	}
	return q.conditions()
}

// patchUpload answers the PATCH that brings bytes.
func (q *request) patchUpload(u *upload) {
	offset, err := digits(q.r.Header.Get(headerOffset))
	switch {
	case q.r.Header.Get("Content-Type") != offsetStream:
		q.failUpload(http.StatusUnsupportedMediaType, wire.CauseBadRequest, errors.New("Content-Type must be "+offsetStream))
	case err != nil:
		q.failUpload(http.StatusBadRequest, wire.CauseBadRequest, fmt.Errorf("%s %.40q is not a number of bytes", headerOffset, q.r.Header.Get(headerOffset)))
	case offset != u.offset:
		q.w.Header().Set(headerOffset, strconv.FormatInt(u.offset, 10))
		q.failUpload(http.StatusConflict, wire.CauseBadRequest, fmt.Errorf("%s is %d, and %d bytes have arrived: go on from there", headerOffset, offset, u.offset))
	default:
		if err := checkConditions(q.r.Header); err != nil {
			q.failUpload(http.StatusBadRequest, wire.CauseBadRequest, err)
			return
		}
		q.takeBytes(u, http.StatusNoContent)
	}
}

// takeBytes takes a request's body as the next bytes of an upload, finishes the
// upload where these are the last, and answers.
func (q *request) takeBytes(u *upload, status int) {
	sums, object, err := q.checksums()
	if first := u.info.Digest; err == nil && object != nil && first != nil && *object != *first {
		err = fmt.Errorf("Repr-Digest says sha-256 %s, but said %s when the upload began: send the digest of the whole object", object, first)
	}
	if err != nil {
		q.failUpload(http.StatusBadRequest, wire.CauseBadRequest, err)
		return
	}
	if !u.whole() { // otherwise the object itself is judged
		if cause, err := q.meets(q.patchConditions(), u.info.Name, cmp.Or(u.info.Digest, object)); cause != "" {
			q.refuseUnread(cause, err)
			return
		}
	}
	if !q.takeLength(u) {
		return
	}
	left := q.limit() - u.offset
	if !u.unknown {
		left = u.info.Length - u.offset
	}
	if q.r.ContentLength > left {
		q.failUpload(http.StatusRequestEntityTooLarge, wire.CauseObjectTooLarge, fmt.Errorf("%d bytes more than %s or limits.maxObjectSize allows", q.r.ContentLength-left, headerLength))
		return
	}
	u.remove(q.server.ctx, u.orphans)
	u.orphans = nil
	b := newBody(q)
	p := newPieces(u, sums, b.wake)
	cause, readErr := b.readInto(p, left)
	wrong, err := p.finish(q.server.ctx, cause == "")
	switch {
	case err != nil:
		q.failUploadBy(err)
	case cause == wire.CauseObjectTooLarge:
		q.failUpload(http.StatusRequestEntityTooLarge, cause, fmt.Errorf("more bytes than %s or limits.maxObjectSize allows", headerLength))
	case cause != "":
		q.refuse(cause, p.size, readErr)
	case wrong != nil:
		q.failUpload(wrong.status, wire.CauseDigestMismatch, fmt.Errorf("the bytes that arrived do not have the checksum of %s: send them again", wrong.header))
	case u.whole():
		q.finishUpload(u, status, object)
	default:
		q.answerUpload(status, u)
	}
}

// takeLength takes the length of an upload that had none, where the request says it; otherwise it
// answers, and returns false. A length that is known does not change.
func (q *request) takeLength(u *upload) bool {
	said := q.r.Header.Get(headerLength)
	if said == "" || q.r.Method == http.MethodPost && q.method() == http.MethodPost { // readUploadHeader reads a POST's
		return true
	}
	length, err := parseLength(said)
	switch {
	case err != nil:
		q.failUpload(http.StatusBadRequest, wire.CauseBadRequest, err)
	case length == 0:
		q.failUpload(http.StatusBadRequest, wire.CauseEmpty, errNoBytes)
	case length > q.limit():
		q.failUpload(http.StatusRequestEntityTooLarge, wire.CauseObjectTooLarge, fmt.Errorf("the upload has %d bytes, more than the limit of %d", length, q.limit()))
	case length < u.offset:
		q.failUpload(http.StatusBadRequest, wire.CauseBadRequest, fmt.Errorf("%s is %d, and %d bytes have arrived", headerLength, length, u.offset))
	default:
		if u.unknown {
			err = u.setLength(q.server.ctx, length)
		}
		switch {
		case err != nil:
			q.failUploadBy(err)
		case length != u.info.Length:
			q.failUpload(http.StatusBadRequest, wire.CauseBadRequest, fmt.Errorf("%s is %d, and was %d before", headerLength, length, u.info.Length))
		default:
			return true
		}
	}
	return false
}

// answerUpload answers where an upload stands.
func (q *request) answerUpload(status int, u *upload) {
	h := q.w.Header()
	h.Set(headerOffset, strconv.FormatInt(u.offset, 10))
	if u.heard = time.Now(); status != http.StatusOK {
		h.Set("Upload-Expires", u.expires().UTC().Format(http.TimeFormat))
	}
	if status != http.StatusNoContent {
		h.Set("Content-Length", "0")
	}
	_ = q.control.SetWriteDeadline(time.Now().Add(answerTimeout))
	q.w.WriteHeader(status)
}

// tellUpload answers HEAD. An upload whose bytes have all arrived is in the archive before the
// answer says so: its sender forgets it then.
func (q *request) tellUpload(u *upload) {
	h := q.w.Header()
	if u.unknown {
		h.Set(headerDefer, "1")
	} else {
		h.Set(headerLength, strconv.FormatInt(u.info.Length, 10))
	}
	if u.info.Metadata != "" {
		h.Set("Upload-Metadata", u.info.Metadata)
	}
	if u.whole() {
		q.finishUpload(u, http.StatusOK, nil)
		return
	}
	h.Set("Upload-Expires", u.expires().UTC().Format(http.TimeFormat))
	q.answerUpload(http.StatusOK, u)
}

func (q *request) terminateUpload(u *upload) {
	if err := u.terminate(q.server.ctx); err != nil {
		q.failUploadBy(err)
		return
	}
	q.server.metrics.uploads.WithLabelValues(q.name(), "terminated").Inc()
	q.w.WriteHeader(http.StatusNoContent)
}

// finishUpload puts an upload whose bytes have all arrived into the archive, where
// that is not done, and answers with the receipt. Said is the digest of the object that
// the request says, or nil.
func (q *request) finishUpload(u *upload, status int, said *wire.Digest) {
	h := q.w.Header()
	h.Set(headerOffset, strconv.FormatInt(u.offset, 10))
	if u.isDone {
		done, err := u.done(q.server.ctx)
		if err != nil {
			q.failUploadBy(err)
			return
		}
		if err := u.checkStands(q.server.ctx, done); err != nil {
			q.failUploadBy(err)
			return
		}
		if said != nil && *said != done.Digest {
			q.failUpload(http.StatusBadRequest, wire.CauseDigestMismatch, otherObject(*said, done.Digest))
			return
		}
		q.receiptOfUpload(status, store.Kept{Record: wire.Record{ID: done.ID, Digest: done.Digest}, Again: true})
		return
	}
	o := q.server.cfg.Archive.Begin(q.listener.Instrument, q.source, func() {})
	o.Describe(u.info.Name, u.info.MediaType)
	of := append(u.conditions(), q.patchConditions()...)
	if of.onlyFirst() {
		o.OnlyFirst()
	}
	o.CameTo(q.listener.Name, q.port, "")
	if err := u.copyTo(q.server.ctx, o); err != nil {
		o.Abort(store.CauseOf(err))
		q.failUploadBy(err)
		return
	}
	if want := cmp.Or(u.info.Digest, said); want != nil && *want != o.Digest() {
		o.Abort(wire.CauseDigestMismatch)
		q.failOther(u, otherObject(*want, o.Digest()))
		return
	}
	digest := o.Digest()
	if cause, err := q.meets(of, u.info.Name, &digest); cause != "" {
		o.Abort(cause)
		q.refuse(cause, u.info.Length, err)
		return
	}
	o.Whole(wire.CompletenessVerified)
	kept, err := o.Keep(q.server.ctx)
	if err != nil {
		q.refuse(of.causeOf(err), u.info.Length, err)
		return
	}
	u.markFinished(q.server.ctx, kept.Record)
	q.server.metrics.uploads.WithLabelValues(q.name(), "finished").Inc()
	q.receiptOfUpload(status, kept)
}

func otherObject(said, arrived wire.Digest) error {
	return fmt.Errorf("Repr-Digest said sha-256 %s, but the bytes that arrived have %s: start the upload again", said, arrived)
}

// failOther answers that an upload's object is another than its sender said. If only the
// last request said that, the upload is removed: a client that asks for it next would
// finish it.
func (q *request) failOther(u *upload, other error) {
	if u.info.Digest == nil {
		if err := u.terminate(q.server.ctx); err != nil {
			q.failUploadBy(err)
			return
		}
	}
	q.failUpload(http.StatusBadRequest, wire.CauseDigestMismatch, other)
}

// receiptOfUpload says where the upload's object is: Location is the upload's own.
func (q *request) receiptOfUpload(status int, kept store.Kept) {
	h := q.w.Header()
	h.Set("Content-Location", locationOf(kept))
	setDigest(h, kept.Digest)
	q.answerReceipt(status, kept)
}
