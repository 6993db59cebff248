// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// RetryAway is when to ask again while the object store or the registry is away, in
	// seconds.
	RetryAway = 5
	// renewal is how long Still takes a client for who it was: a certificate ends without
	// a change of the registry.
	renewal = 5 * time.Second
	// statusClientGone is sent to no client; it is counted.
	statusClientGone = 499
)

// Request is one request, with what is known of its client.
type Request struct {
	*http.Request
	W        http.ResponseWriter
	Snapshot *registry.Snapshot
	Identity
	Now time.Time

	check *AccessCheck
	class Class
	// bulk: it is for what is read in bulk.
	bulk bool
	sent counter
	// slow: the client did not take what it was sent in time.
	slow bool
	// turns that the answer has one of; nil: it needs none.
	turns *Turns
	// observed is when the requested object was observed, if the request is for one object.
	observed time.Time
	// about is the instrument whose data is asked for; shares are the bytes of each where
	// there are several.
	about  string
	shares map[string]int64
}

type requestKey struct{}

func withRequest(ctx context.Context, v *Request) context.Context {
	return context.WithValue(ctx, requestKey{}, v)
}

// RequestOf returns what AccessCheck.Handle knows of a request; nil for a request that did not pass it.
func RequestOf(r *http.Request) *Request {
	v, _ := r.Context().Value(requestKey{}).(*Request)
	return v
}

// Renew identifies the client again, by the current registry: for live answers. If it returns a
// problem, it changes nothing.
func (v *Request) Renew() *problem.Problem {
	now := v.check.cfg.Registry()
	who, p := v.check.cfg.Admission.readers.Identify(now, v.Request)
	if p == nil {
		v.Snapshot, v.Identity, v.Now = now, who, time.Now()
	}
	return p
}

// Still returns what the registry says now of an instrument, whose data is being sent:
// for answers that take long. It costs next to nothing while the registry is the same.
// Errors: ErrOver.
func (v *Request) Still(instrument string) (wire.InstrumentEntry, error) {
	if v.check.cfg.Registry() != v.Snapshot || time.Since(v.Now) > renewal {
		if v.Renew() != nil {
			return wire.InstrumentEntry{}, ErrOver
		}
	}
	in, known := v.Snapshot.Instruments[instrument]
	if !known || v.Verdict(in, instrument, time.Time{}) != nil {
		return in, ErrOver
	}
	return in, nil
}

// Offered is Still for what is offered to mirrors, which are the Site's own instruments: instruments of other Sites are
// pulled there, and a mirror would get its own instruments back.
func (v *Request) Offered(instrument string) (wire.InstrumentEntry, error) {
	if wire.IsGuest(instrument) {
		return wire.InstrumentEntry{}, ErrOver
	}
	return v.Still(instrument)
}

// Base is the Site's address for the client, without a slash at its end.
func (v *Request) Base() string { return v.check.base(v) }

// About sets the instrument that the request is counted for.
func (v *Request) About(instrument string) { v.about = instrument }

// Share records that so many bytes of an instrument's data were sent, in an answer about several.
func (v *Request) Share(instrument string, bytes int64) {
	if v.about != "" {
		return
	}
	if v.shares == nil {
		v.shares = map[string]int64{}
	}
	v.shares[instrument] += bytes
}

// Instrument returns what the registry says of an instrument, if the client may read its
// archive at all. The parameter what says in the answer what was asked for.
func (v *Request) Instrument(name, what string) (wire.InstrumentEntry, *problem.Problem) {
	in, known := v.Snapshot.Instruments[name]
	if !known {
		if p := v.Ready(); p != nil {
			return in, p
		}
		return in, NotFound(what)
	}
	v.About(name)
	return in, v.Verdict(in, what, time.Time{})
}

// MayRead reports whether the client may read the archive of an instrument at all, without a
// reason.
func (v *Request) MayRead(name string) bool {
	in, known := v.Snapshot.Instruments[name]
	return known && v.Verdict(in, name, time.Time{}) == nil
}

// Ready returns a problem if this replica does not know the Site's Instruments yet.
func (v *Request) Ready() *problem.Problem {
	if v.Snapshot.Revision > 0 {
		return nil
	}
	return problem.New(http.StatusServiceUnavailable, "this replica does not know the Site's Instruments yet").After(RetryAway)
}

// Verdict returns the problem if the client may not have data observed at a time; nil: it may. The
// zero time asks for the instrument as such.
func (v *Request) Verdict(in wire.InstrumentEntry, what string, observed time.Time) *problem.Problem {
	if !observed.IsZero() {
		v.observed = observed
	}
	switch access.Decide(access.Archive, v.Reader, in.Instrument, in.Access, observed, v.Now) {
	case access.Granted:
		return nil
	case access.NeedsReader:
		return problem.New(http.StatusUnauthorized,
			"the archive of Instrument %s is not for everybody: show a reader's token, as Authorization: Bearer … or as the password", in.Instrument)
	case access.Forbidden:
		return problem.New(http.StatusForbidden, "%s may not read the archive of Instrument %s: see spec.access of the Instrument", v.Reader, in.Instrument)
	default:
		return NotFound(what)
	}
}

// Sees reports whether the client may have what was observed at a time.
func (v *Request) Sees(in wire.InstrumentEntry, observed time.Time) bool {
	return access.Decide(access.Archive, v.Reader, in.Instrument, in.Access, observed, v.Now) == access.Granted
}

// Embargoed reports whether anything of an instrument may be hidden from the client.
func (v *Request) Embargoed(in wire.InstrumentEntry) bool {
	return access.Decide(access.Archive, v.Reader, in.Instrument, in.Access, v.Now, v.Now) == access.Hidden
}

// EmbargoStep is how often content that depends on an embargo changes by itself for clients from which data is
// hidden.
const EmbargoStep = time.Minute

// ArchiveTag returns a tag of what the archive holds of an instrument. If some of that is hidden from the client, it is
// the minute, since the tag would reveal when something arrives.
func (v *Request) ArchiveTag(in wire.InstrumentEntry, tag string) string {
	if v.Embargoed(in) {
		return v.Now.UTC().Truncate(EmbargoStep).Format(time.RFC3339)
	}
	return tag
}

// NotFound is the same answer for a missing and for a hidden object.
func NotFound(what string) *problem.Problem {
	return problem.New(http.StatusNotFound, "nothing is published as %s: /archive/ lists what is", what)
}

// Damaged counts an object of an instrument whose bytes in the store are not those that were
// received, or are gone, and reports it.
func (v *Request) Damaged(instrument string, err error) {
	v.check.metrics.damaged.Inc()
	var broken *objectpath.Broken
	if v.check.cfg.Damaged != nil && instrument != "" && errors.As(err, &broken) {
		v.check.cfg.Damaged(instrument, broken.Record, errors.Is(err, objectstore.ErrNotFound))
	}
}

// Unreadable says why a catalog or the store does not give what is asked for.
func (v *Request) Unreadable(what string, err error) *problem.Problem {
	if ctx := v.Context().Err(); ctx != nil {
		return problem.New(statusClientGone, "the client is gone: %v", ctx)
	}
	v.check.cfg.Logger.Warn("the archive cannot be read", "path", what, "error", err)
	switch {
	case errors.Is(err, manifest.ErrMissing):
		return problem.New(http.StatusBadGateway, "%s cannot be read: a manifest, which lists what was received, is missing in the object store. "+
			"The objects themselves may be whole: who runs this Site lists them again with substorm archive rebuild", what)
	case errors.Is(err, objectstore.ErrNotFound):
		v.Damaged(v.about, err)
		return problem.New(http.StatusBadGateway, "%s is missing in the object store, though the archive lists it: who runs this Site finds what else is with substorm archive verify", what)
	case errors.Is(err, objectpath.ErrDamaged):
		v.Damaged(v.about, err)
		return problem.New(http.StatusBadGateway, "%s is damaged in the store, and is not served: its bytes are not those that were received", what)
	case errors.Is(err, objectstore.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return problem.New(http.StatusServiceUnavailable, "the object store does not answer now: ask for %s again", what).After(RetryAway)
	default:
		return problem.New(http.StatusBadGateway, "%s cannot be read from the object store: see the log of the feed server", what)
	}
}

// Policy is how long answers about an instrument may be kept: no longer than new data is due in,
// and as long again while a cache revalidates (RFC 5861).
func Policy(in wire.InstrumentEntry, most time.Duration) string {
	const least = time.Second
	age := time.Duration(in.CadenceMillis) * time.Millisecond
	if age <= 0 || age > most {
		age = most
	}
	age = max(age, least)
	scope := "private"
	if Public(in) {
		scope = "public"
	}
	seconds := int64(age / time.Second)
	return fmt.Sprintf("%s, max-age=%d, stale-while-revalidate=%d", scope, seconds, seconds)
}

// Public reports whether everybody may have all of an instrument's archive.
func Public(in wire.InstrumentEntry) bool {
	return in.Access != nil && in.Access.Archive == wire.AccessPublic && in.Access.EmbargoMillis == 0
}
