// SPDX-License-Identifier: Apache-2.0

package http

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/substorm/substorm/ingest-gateway/store"
	"github.com/substorm/substorm/internal/nameclaims"
	"github.com/substorm/substorm/internal/wire"
)

const (
	headerNoneMatch = "If-None-Match"
	headerMatch     = "If-Match"
	// anyTag stands for whatever the name has.
	anyTag = "*"
)

var errPrecondition = errors.New("the name does not meet If-Match or If-None-Match, so nothing was stored: ask for its ETag, and send again")

// tags is the syntax of both headers: any, or a list of entity tags, in which a proxy leaves empty elements (RFC 9110, 5.6.1 and 8.8.3).
var tags = regexp.MustCompile(`^[ \t]*\*[ \t]*$|^[ \t,]*(W/)?"[!#-~\x80-\xff]*"([ \t]*,[ \t,]*(W/)?"[!#-~\x80-\xff]*")*[ \t,]*$`)

// checkConditions refuses a condition that cannot be understood: without it the object would be stored where its sender said that it must not be.
func checkConditions(h http.Header) error {
	for _, name := range []string{headerNoneMatch, headerMatch} {
		values := h.Values(name)
		if len(values) > 0 && !tags.MatchString(strings.Join(values, ",")) {
			return fmt.Errorf("%s %.80q is neither * nor a list of entity tags in quotation marks, such as %q: leave it out to send without a condition",
				name, strings.Join(values, ","), `"5d41402abc4b2a76"`)
		}
	}
	return nil
}

// conditions are the conditions of the requests that send an object, each of which must be met (RFC 9110, 13.1). They
// say that a name has, or does not have, a certain object. The latest version of a name is its current one.
type conditions []http.Header

// conditions are the request's own.
func (q *request) conditions() conditions { return conditions{q.r.Header} }

// any says whether there is a condition.
func (c conditions) any() bool {
	return slices.ContainsFunc(c, func(h http.Header) bool { return h.Get(headerNoneMatch) != "" || h.Get(headerMatch) != "" })
}

// onlyFirst says whether the name must have no object.
func (c conditions) onlyFirst() bool {
	return slices.ContainsFunc(c, func(h http.Header) bool { return lists(h.Values(headerNoneMatch), anyTag, false) })
}

// met compares them with the entity tag of the name's object, empty if it has none.
func (c conditions) met(tag string) bool {
	return !slices.ContainsFunc(c, func(h http.Header) bool {
		return len(h.Values(headerMatch)) > 0 && !lists(h.Values(headerMatch), tag, false) || lists(h.Values(headerNoneMatch), tag, true)
	})
}

// meets judges conditions. Digest is the object's, nil if it is not known yet. If the name has the
// same bytes already, this sender stored them and perhaps lost the receipt: they meet every
// condition, and are answered as without one. Refused is the cause, and its error, for which the
// object is not stored.
func (q *request) meets(of conditions, name string, digest *wire.Digest) (refused wire.Cause, err error) {
	if !of.any() {
		return "", nil
	}
	var tag string
	if name != "" {
		claim, found, err := q.server.cfg.Names.Lookup(q.server.ctx, q.name(), name)
		if err != nil {
			return store.CauseOf(err), err
		}
		if latest, named := claim.Latest(); found && named {
			if digest != nil && latest.Digest == *digest {
				return "", nil
			}
			tag = tagOf(latest.Digest)
		}
	}
	if !of.met(tag) {
		return wire.CausePreconditionFailed, errPrecondition
	}
	return "", nil
}

// lists says whether an entity tag is among those of a header. An empty tag stands for a name that
// has no object. If weak is set, weak tags equal strong ones.
func lists(values []string, tag string, weak bool) bool {
	if tag == "" {
		return false
	}
	for _, value := range values {
		for listed := range strings.SplitSeq(value, ",") {
			listed = strings.TrimSpace(listed)
			if weak {
				listed = strings.TrimPrefix(listed, "W/")
			}
			if listed == anyTag || listed == tag {
				return true
			}
		}
	}
	return false
}

func tagOf(d wire.Digest) string { return `"` + d.String() + `"` }

// refusedEarly answers a request whose conditions cannot be met whatever its body is.
func (q *request) refusedEarly(name string, wanted digests) bool {
	if digest, said := wanted.sha256(); said {
		if cause, err := q.meets(q.conditions(), name, &digest); cause != "" {
			q.refuseUnread(cause, err)
			return true
		}
	}
	return false
}

// causeOf sorts an error of storing an object of these conditions: another object that got the name
// meanwhile breaks them. A folder of that name does not: no condition is about it.
func (c conditions) causeOf(err error) wire.Cause {
	cause := store.CauseOf(err)
	if cause == wire.CauseNameConflict && c.any() && !errors.As(err, new(*nameclaims.FolderError)) {
		return wire.CausePreconditionFailed
	}
	return cause
}
