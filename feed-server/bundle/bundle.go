// SPDX-License-Identifier: Apache-2.0

// Package bundle sends many objects as one tar: what some instruments observed, or what
// came, in a time, or of that what changed since an earlier bundle. Nothing is made
// beforehand: a bundle is what the manifests say while it is sent, day by day.
package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// Root is what the paths begin with: /bundle/<instrument>.tar.
	Root = "/bundle/"
	// rootOfSeveral is the path of bundles whose instruments the query names.
	rootOfSeveral = "/bundle.tar"

	mediaTar, mediaZstd = "application/x-tar", "application/zstd"
	// cost is what a bundle takes in memory: what is read ahead, 100,000 chosen objects of
	// a day, and what compresses it; the day that it is about is the catalog's.
	cost = aheadBytes + 3<<20 + endpoint.CompressorCost
	// defaultMemory is Config.Memory by default.
	defaultMemory = 8 * cost
)

// Catalog knows what the archive holds. internal/catalog is one.
type Catalog interface {
	// Days returns the days that have objects, ascending.
	Days(ctx context.Context, instrument string) ([]wire.RootDay, error)
	// Day returns the objects of a day, in the order of paths.
	Day(ctx context.Context, instrument string, day wire.Day) (*catalog.Day, error)
}

// Config says what is served.
type Config struct {
	// Site is the Site's code.
	Site        string
	Catalog     Catalog
	Store       objectstore.Store
	AccessCheck *endpoint.AccessCheck
	// Memory bounds what bundles take, and so how many are sent at a time, in bytes.
	Memory int64
	Logger *slog.Logger
}

// Bundles sends the bundles of one Site.
type Bundles struct {
	cfg   Config
	turns *endpoint.Turns
}

// New returns what answers at its Endpoints.
func New(cfg Config) *Bundles {
	if cfg.Memory <= 0 {
		cfg.Memory = defaultMemory
	}
	return &Bundles{cfg: cfg, turns: endpoint.NewTurns(max(2, int(cfg.Memory/cost)))}
}

// AtOnce is how many bundles a client is sent at the same time while no other is sent any.
func (b *Bundles) AtOnce(v *endpoint.Request) int { return b.turns.MaxOf(v) }

// Endpoints are the patterns that are answered, as http.ServeMux reads them.
func (b *Bundles) Endpoints() map[string]http.HandlerFunc {
	of := func(name func(*endpoint.Request) string) http.HandlerFunc {
		return b.cfg.AccessCheck.AnswerBulk(func(v *endpoint.Request) *problem.Problem { return b.serve(v, name(v)) })
	}
	return map[string]http.HandlerFunc{
		Root + "{file}":                   of(func(v *endpoint.Request) string { return v.PathValue("file") }),
		rootOfSeveral:                     of(func(*endpoint.Request) string { return ".tar" }),
		rootOfSeveral + ".zst":            of(func(*endpoint.Request) string { return ".tar.zst" }),
		"POST " + mirrorindex.ObjectsPath: b.cfg.AccessCheck.AnswerQuestion(b.serveNamed),
	}
}

// plan is a question with the days that may answer it.
type plan struct {
	question
	days [][]planned // of each instrument
}

type planned struct {
	wire.RootDay
	number dayNumber
}

// serve answers one request.
func (b *Bundles) serve(v *endpoint.Request, name string) *problem.Problem {
	if p := v.Ready(); p != nil {
		return p
	}
	q, p := ask(v, name)
	if p != nil {
		return p
	}
	todo, err := b.plan(v.Context(), q)
	if err != nil {
		return v.Unreadable("bundle", err)
	}
	encoded := !q.zstd && endpoint.AcceptsZstd(v.Request)
	tag := todo.tag(v, encoded)
	h := v.W.Header()
	h.Set("ETag", "W/"+tag) // a weak one: a compaction changes it too
	h.Set("Cache-Control", "private, no-cache")
	h.Set("Vary", "Accept-Encoding, Authorization")
	switch endpoint.Evaluate(v.Request, tag, time.Time{}) {
	case endpoint.Unchanged:
		v.W.WriteHeader(http.StatusNotModified)
		return nil
	case endpoint.Failed:
		return problem.New(http.StatusPreconditionFailed, "the bundle is another than the one that you mean: it has ETag %s", tag)
	}
	h.Set("Content-Type", mediaTar)
	h.Set("Content-Disposition", `attachment; filename="`+todo.file(b.cfg.Site)+`"`)
	if q.zstd {
		h.Set("Content-Type", mediaZstd)
	} else if encoded {
		h.Set("Content-Encoding", "zstd")
	}
	if v.Method == http.MethodHead {
		v.W.WriteHeader(http.StatusOK)
		return nil
	}
	done, p := b.turn(v)
	if p != nil {
		return p
	}
	defer done()
	v.W.WriteHeader(http.StatusOK)
	v.Finish("bundle", b.send(v, todo, q.zstd || encoded))
	return nil
}

// turn waits for one of the places for bundles that are sent at a time.
func (b *Bundles) turn(v *endpoint.Request) (done func(), p *problem.Problem) {
	done, ok := b.turns.Take(v.Context(), v)
	if !ok {
		return nil, problem.New(http.StatusServiceUnavailable, "too many bundles are being sent, or too many to you: ask again").After(int(endpoint.TurnPatience / time.Second))
	}
	return done, nil
}

// plan finds the days that may answer a question.
func (b *Bundles) plan(ctx context.Context, q question) (plan, error) {
	p := plan{question: q}
	for _, in := range q.instruments {
		days, err := b.cfg.Catalog.Days(ctx, in.Instrument)
		if err != nil {
			return p, err
		}
		var all []planned
		for _, d := range days {
			number, err := numberOf(d.Day)
			if err != nil {
				return p, err
			}
			if q.may(d, number) {
				all = append(all, planned{d, number})
			}
		}
		p.days = append(p.days, all)
	}
	return p, nil
}

// tag changes with the manifests and with the descriptions of the instruments.
func (p *plan) tag(v *endpoint.Request, encoded bool) string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "2 %s %x %t %t %s\n", v.Reader, p.digest(), p.zstd, encoded, v.URL.Query().Get("since"))
	if p.since.lacks() { // what was left out comes back without a change of the manifests
		_, _ = fmt.Fprintf(h, "%s\n", v.Now)
	}
	for i, in := range p.instruments {
		_, _ = fmt.Fprintf(h, "%s %s %d\n", in.Instrument, in.UID, in.Generation)
		for _, d := range p.days[i] {
			_, _ = fmt.Fprintf(h, "%d\n", filesOf(d.RootDay))
		}
		if v.Embargoed(in) { // what is hidden appears without a change of the archive's
			_, _ = fmt.Fprintf(h, "%s\n", v.Now)
		}
	}
	return `"` + hex.EncodeToString(h.Sum(nil)[:12]) + `"`
}

// file is the name under which a bundle is kept.
func (p *plan) file(site string) string {
	name := site
	if len(p.instruments) == 1 {
		name += "-" + p.instruments[0].Instrument
	}
	for _, t := range []time.Time{p.from, p.to} {
		if !t.IsZero() {
			name += "-" + strings.TrimSuffix(t.Format("20060102T150405"), "T000000")
		}
	}
	if p.zstd {
		return name + ".tar.zst"
	}
	return name + ".tar"
}
