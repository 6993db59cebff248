// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/substorm/substorm/feed-server/door"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/tree"
	"github.com/substorm/substorm/internal/wire"
)

// legacyRoot is what the paths of the legacy tree begin with, see wire.Legacy.
const legacyRoot = "/legacy/"

// run is what came from one address to one port in one day, as it came: one run of
// bytes, to which later data is appended.
type run struct {
	objects []*wire.Record // as they were received
	size    int64
	// public: everybody may have all of it.
	public bool
}

// serveLegacy answers with a run: of what came, all that who asks may have.
func (a *Archive) serveLegacy(v *door.Visit) *problem.Problem {
	path, err := unescape(strings.TrimPrefix(v.URL.EscapedPath(), "/"))
	if err != nil {
		return problem.New(http.StatusBadRequest, "%v", err)
	}
	l, err := wire.ParseLegacyPath(path)
	if err != nil {
		return problem.New(http.StatusNotFound, "%v", err)
	}
	t := target{path: path}
	r, p := a.gather(v, t, l)
	if p != nil {
		return p
	}
	tag := r.tag()
	h := v.W.Header()
	h.Set("ETag", tag)
	h.Set("Cache-Control", r.policy())
	h.Set("Vary", "Authorization")
	// When it changed is not told: what comes late from a spool stands in between.
	switch door.Evaluate(v.Request, tag, time.Time{}) {
	case door.Unchanged:
		v.W.WriteHeader(http.StatusNotModified)
		return nil
	case door.Failed:
		return problem.New(http.StatusPreconditionFailed, "%s is another than the one that you mean: it has ETag %s", t, tag)
	}
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Accept-Ranges", "bytes")
	h.Set("X-Content-Type-Options", "nosniff")
	asked, p := partOf(v, t, tag, time.Time{}, r.size)
	if p != nil {
		return p
	}
	begin(v, r.size, asked)
	if v.Method == http.MethodGet {
		v.Finish(t.String(), a.sendRun(v, r, asked))
	}
	return nil
}

// gather finds what is in a run.
func (a *Archive) gather(v *door.Visit, t target, l wire.Legacy) (*run, *problem.Problem) {
	r := &run{public: true}
	var refused *problem.Problem
	for _, name := range slices.Sorted(maps.Keys(v.Snapshot.Instruments)) {
		in := v.Snapshot.Instruments[name]
		if !slices.ContainsFunc(in.Ways, func(w wire.WayEntry) bool { return w.Protocol != wire.ProtocolUDP }) {
			continue
		}
		if p := v.Verdict(in, t.String(), time.Time{}); p != nil {
			refused = p
			continue
		}
		day, err := a.cfg.Catalog.Day(v.Context(), name, l.Day)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, v.Unreadable(t.String(), err)
		}
		before := len(r.objects)
		for o := range day {
			if of, ok := wire.LegacyOf(*o); ok && of == l && a.withheld(v, in, t, o) == nil {
				r.objects = append(r.objects, o)
				v.About(name)
			}
		}
		r.public = r.public && (door.Public(in) || len(r.objects) == before)
	}
	if len(r.objects) == 0 {
		if refused != nil {
			return nil, refused
		}
		return nil, notFound(t)
	}
	slices.SortFunc(r.objects, func(a, b *wire.Record) int {
		if before(a, b) {
			return -1
		}
		return 1
	})
	for _, o := range r.objects {
		head, tail := tree.Framed(*o)
		r.size += int64(len(head)) + o.Size + int64(len(tail))
	}
	return r, nil
}

// tag is a strong entity tag.
func (r *run) tag() string {
	h := sha256.New()
	for _, o := range r.objects {
		_, _ = h.Write(o.Digest[:])
		_, _ = h.Write([]byte(o.Framing + "\n"))
	}
	return `"` + hex.EncodeToString(h.Sum(nil)[:16]) + `"`
}

func (r *run) policy() string {
	scope := "private"
	if r.public {
		scope = "public"
	}
	return scope + ", max-age=" + strconv.Itoa(int(listingAge/time.Second))
}

// sendRun sends a part of a run, object by object. Each is compared with its digest
// before its last byte goes out.
func (a *Archive) sendRun(v *door.Visit, r *run, asked part) error {
	for _, o := range r.objects {
		head, tail := tree.Framed(*o)
		if err := v.Send(asked.of(head)); err != nil {
			return err
		}
		asked = asked.behind(int64(len(head)))
		if err := a.sendObject(v.Context(), v.Send, o, asked.within(o.Size)); err != nil {
			return err
		}
		asked = asked.behind(o.Size)
		if err := v.Send(asked.of(tail)); err != nil {
			return err
		}
		if asked = asked.behind(int64(len(tail))); asked.length == 0 {
			return nil
		}
	}
	return fmt.Errorf("%d bytes are missing at its end", asked.length)
}

// sendObject writes a part of an object that is not held in memory.
func (a *Archive) sendObject(ctx context.Context, write func([]byte) error, o *wire.Record, asked part) error {
	switch {
	case asked.length == 0:
		return nil
	case asked.length == o.Size:
		body, err := tree.Open(ctx, a.cfg.Store, *o)
		if err != nil {
			return err
		}
		defer body.Close()
		return heldBack(write, body, o.Size)
	case o.Size <= verifiedBelow:
		data, err := fetch(ctx, a.cfg.Store, *o)
		if err != nil {
			return err
		}
		return write(asked.of(data))
	default:
		body, _, err := a.cfg.Store.Get(ctx, o.Key, objectstore.Range{Offset: o.Offset + asked.offset, Length: asked.length})
		if err != nil {
			return err
		}
		defer body.Close()
		return heldBack(write, body, asked.length)
	}
}

// within is what lies in the first size bytes.
func (p part) within(size int64) part {
	if p.offset >= size {
		return part{size, 0}
	}
	return part{p.offset, min(p.length, size-p.offset)}
}

// of is what lies in some bytes.
func (p part) of(data []byte) []byte {
	p = p.within(int64(len(data)))
	return data[p.offset : p.offset+p.length]
}

// behind is what lies behind the first size bytes, counted from there.
func (p part) behind(size int64) part {
	taken := p.within(size).length
	return part{max(0, p.offset-size), p.length - taken}
}
