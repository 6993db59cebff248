// SPDX-License-Identifier: Apache-2.0

package http

import (
	"errors"
	"fmt"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/substorm/substorm/ingest-gateway/store"
	"github.com/substorm/substorm/internal/nameclaims"
	"github.com/substorm/substorm/internal/wire"
)

// maxMediaType is how long a media type may be, in bytes, as an Instrument's.
const maxMediaType = 127

// receive receives one object, under a name or without.
func (q *request) receive(name string) {
	mediaType, wanted, err := q.readHeader(name)
	if err != nil {
		q.refuseUnread(wire.CauseBadRequest, err)
		return
	}
	switch {
	case q.r.ContentLength > q.limit():
		q.refuseUnread(wire.CauseObjectTooLarge, nil)
		return
	case q.r.ContentLength == 0:
		q.refuseUnread(wire.CauseEmpty, nil)
		return
	}
	if !q.mayBegin() || q.refusedEarly(name, wanted) || name != "" && q.answerKnown(name, wanted) {
		return
	}
	q.take(name, wanted, anySize, func(wake func()) *store.Object {
		o := q.server.cfg.Archive.Begin(q.listener.Instrument, q.source, wake)
		o.Describe(name, mediaType)
		if q.conditions().onlyFirst() {
			o.OnlyFirst()
		}
		return o
	})
}

// anySize is the size of an object whose size is not stated.
const anySize = -1

// take receives the object that begin began, and keeps it if it has the digests, and the size in bytes, that are wanted,
// and the name what the request says.
func (q *request) take(name string, wanted digests, size int64, begin func(wake func()) *store.Object) {
	b := newBody(q)
	o := begin(b.wake)
	o.CameTo(q.listener.Name, q.port, "")
	if cause, err := b.readInto(o, q.limit()); cause != "" {
		size := o.Size()
		o.Abort(cause)
		q.refuse(cause, size, err)
		return
	}
	if err := wanted.addTrailer(q.r.Trailer); err != nil {
		o.Abort(wire.CauseBadRequest)
		q.refuse(wire.CauseBadRequest, o.Size(), err)
		return
	}
	switch arrived := o.Size(); {
	case size != anySize && arrived != size:
		o.Abort(wire.CauseDigestMismatch)
		q.refuse(wire.CauseDigestMismatch, arrived, fmt.Errorf("%s says %d bytes, and %d arrived", wire.HeaderRecord, size, arrived))
	case arrived == 0 && size != 0:
		o.Abort(wire.CauseEmpty)
		q.refuse(wire.CauseEmpty, 0, nil)
	default:
		q.keep(name, o, wanted)
	}
}

// mayBegin says whether the instrument may send one more object now; otherwise the answer says
// when.
func (q *request) mayBegin() bool {
	wait, ok := q.listener.Instrument.Limit.TakeObject()
	if !ok {
		q.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		q.refuseUnread(wire.CauseRateLimited, nil)
	}
	return ok
}

// keep stores a whole object and answers.
func (q *request) keep(name string, o *store.Object, wanted digests) {
	size := o.Size()
	if err := wanted.check(o.Digest()); err != nil {
		o.Abort(wire.CauseDigestMismatch)
		q.refuse(wire.CauseDigestMismatch, size, err)
		return
	}
	digest := o.Digest()
	if cause, err := q.meets(q.conditions(), name, &digest); cause != "" {
		o.Abort(cause)
		q.refuse(cause, size, err)
		return
	}
	completeness := wire.CompletenessVerified
	if q.mirrored { // of a tree of files, whose source may have been writing this one; what came from another Substorm is as its origin says
		completeness = wire.CompletenessUnverified
	}
	o.Whole(completeness)
	kept, err := o.Keep(q.server.ctx)
	if err != nil {
		q.refuse(q.conditions().causeOf(err), size, err)
		return
	}
	q.answerKept(kept)
}

// limit is the greatest size of an object, in bytes.
func (q *request) limit() int64 { return min(q.listener.Instrument.MaxObjectSize, store.MaxObjectSize) }

// readHeader reads what a request says of its object. Errors say what the sender is to do.
func (q *request) readHeader(name string) (mediaType string, wanted digests, err error) {
	if name != "" {
		if err := wire.CheckUploadName(name); err != nil {
			return "", nil, err
		}
	}
	if err := checkConditions(q.r.Header); err != nil {
		return "", nil, err
	}
	if mediaType, err = mediaTypeOf(q.r.Header); err != nil {
		return "", nil, err
	}
	wanted, err = q.wanted()
	return mediaType, wanted, err
}

// wanted are the digests that an object must have, whose bytes are the body as it is.
func (q *request) wanted() (digests, error) {
	if q.r.Header.Get("Content-Range") != "" {
		return nil, errors.New("Content-Range is not supported: send the object whole, or in parts by tus")
	}
	if said := q.r.Header.Get("Content-Encoding"); said != "" && said != "identity" {
		return nil, fmt.Errorf("Content-Encoding %.40q is not supported, as objects are kept as they are sent: send the object without encoding, or with the Content-Type of the encoded bytes", said)
	}
	return digestsOf(q.r.Header)
}

// mediaTypeOf returns what Content-Type says; "" if it is missing, or is curl's default for all
// that it posts.
func mediaTypeOf(h http.Header) (string, error) {
	said := h.Get("Content-Type")
	if said == "" {
		return "", nil
	}
	mediaType, _, err := mime.ParseMediaType(said)
	switch {
	case err != nil || len(said) > maxMediaType || strings.ContainsFunc(said, func(r rune) bool { return r < ' ' || r > '~' }):
		return "", fmt.Errorf("Content-Type %.200q is not a media type of at most %d bytes", said, maxMediaType)
	case mediaType == "application/x-www-form-urlencoded":
		return "", nil
	case strings.HasPrefix(mediaType, "multipart/"):
		return "", fmt.Errorf("Content-Type %s: send the object itself as the body (curl -T FILE, or --data-binary @FILE), not a form", mediaType)
	}
	return said, nil
}

// answerKnown answers a request that waits for "100 Continue" if the claim of the name and the store
// decide how it ends: so no client sends what is there already or will be refused.
func (q *request) answerKnown(name string, wanted digests) bool {
	digest, said := wanted.sha256()
	if !said || !strings.EqualFold(q.r.Header.Get("Expect"), "100-continue") {
		return false
	}
	claim, found, err := q.server.cfg.Names.Lookup(q.server.ctx, q.listener.Instrument.Name, name)
	if err != nil || !found {
		return false
	}
	v, equal := claim.Find(digest)
	latest, named := claim.Latest()
	switch {
	case !named:
		q.refuseUnread(wire.CauseNameConflict, &nameclaims.FolderError{Instrument: q.name(), Name: name, Both: name})
		return true
	case equal && v.Announced:
		if stands, err := q.server.cfg.Archive.NameStands(q.server.ctx, q.name(), v); err != nil || !stands {
			return false // the body decides
		}
		q.server.cfg.Archive.Refused(q.name(), wire.CauseDuplicate)
		q.answerKept(store.Kept{Again: true, Record: wire.Record{ID: v.Key, Key: v.Key, Digest: v.Digest, Size: v.Size}})
		return true
	case !equal && latest.Announced && !q.listener.Instrument.KeepVersions:
		q.refuseUnread(wire.CauseNameConflict, nil)
		return true
	}
	return false
}
