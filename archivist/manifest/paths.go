// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"hash/maphash"

	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/wire"
)

// paths are those under which the objects of a day are published.
type paths struct {
	template *naming.Template
	// taken has the greatest number that was added to a path to make it unique, as far as is known:
	// 1, or more.
	taken map[pathHash]uint32
	// sequence is the greatest that a path holds.
	sequence uint64
	// full: there are more than taken knows.
	full bool
}

// pathHash stands for a path. If two paths have the same hash, the later one gets a number that it does not need.
type pathHash uint64

var pathSeed = maphash.MakeSeed()

func hashPath(path string) pathHash { return pathHash(maphash.String(pathSeed, path)) }

// cost is what the paths take of the space for identities: one takes half of what
// an identity does.
func (p *paths) cost() int { return len(p.taken) / 2 }

// learn notes a path that a record has, as long as there is space.
func (p *paths) learn(path string, space int) {
	if path == "" {
		return
	}
	if p.template != nil && p.template.Has("sequence") {
		base, _ := objectpath.Untold(path)
		if v, err := p.template.Read(base); err == nil {
			p.sequence = max(p.sequence, v.Sequence)
		}
	}
	if len(p.taken) >= 2*space {
		p.full = true
		return
	}
	p.take(path, 1)
}

func (p *paths) take(path string, number uint32) {
	if p.taken == nil {
		p.taken = make(map[pathHash]uint32)
	}
	h := hashPath(path)
	p.taken[h] = max(p.taken[h], number)
}

// claimPath returns a path that no other object has: this one, or one with a number.
func (p *paths) claimPath(path string) string {
	was := p.taken[hashPath(path)]
	if was == 0 {
		p.take(path, 1)
		return path
	}
	for number := was + 1; ; number++ {
		told := objectpath.Told(path, int(number))
		if p.taken[hashPath(told)] == 0 {
			p.take(path, number)
			p.take(told, 1)
			return told
		}
	}
}

// template is how an instrument's paths are made.
type template struct {
	*naming.Template
	text, station string
}

// template returns what an instrument declares now; nothing where it cannot be
// understood, which its gateways report.
func (w *Writer) template(instrument string) template {
	var next template
	if w.cfg.Naming != nil {
		next.text, next.station = w.cfg.Naming(instrument)
	}
	if was := w.templates[instrument]; was.text == next.text && was.station == next.station {
		return was
	}
	if next.text != "" {
		next.Template, _ = naming.Parse(next.text)
	}
	w.templates[instrument] = next
	return next
}

// publish gives an object that is about to be listed the path of its own that its naming says, if it says one. An
// object that was pulled from another Site keeps the path that it has there.
func (w *Writer) publish(d *day, n *wire.Notice) {
	if n.Origin != nil {
		return
	}
	if n.Path == "" && n.Gateway != wire.ImportWriter {
		t := w.template(n.Instrument)
		if t.Template == nil || !t.Has("sequence") {
			return
		}
		if n.Path = objectpath.Path(t.Template, n.Instrument, t.station, n.Record, d.paths.sequence+1); n.Path != "" {
			d.paths.sequence++
		}
	}
	if n.Path == "" {
		return
	}
	if d.paths.full || w.held > w.limits.ids {
		d.paths.full = true // from here on taken does not know all
		w.cfg.Metrics.paths.WithLabelValues(pathUnchecked).Inc()
		return
	}
	before := d.paths.cost()
	path := n.Path
	if n.Supersedes != "" || w.superseded.has(n.ID) {
		d.paths.take(path, 1) // it has the path of the version that it replaces, or that replaced it
	} else {
		path = d.paths.claimPath(path)
	}
	w.held += d.paths.cost() - before
	if path == n.Path {
		w.cfg.Metrics.paths.WithLabelValues(pathOwn).Inc()
		return
	}
	w.cfg.Metrics.paths.WithLabelValues(pathTold).Inc()
	n.Path = path
}
