// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/wire"
)

// Day is what the archive holds of an instrument and day of receipt. It is shared
// and never changes.
type Day struct {
	Instrument string
	Day        wire.Day
	// Records in the order of their published paths, and of several with one path
	// the older versions first. Duplicates are left out; what was superseded,
	// retracted or purged says so.
	Records []*wire.Record
	// Changed is when the last of them was received, retracted, restored or purged.
	Changed time.Time
	// Tag names exactly what the day holds: two that are equal, here or at another
	// program, hold the same.
	Tag string

	// duplicates had no name, and their bytes came with one.
	duplicates []*wire.Record
	// paths are the published ones of the records.
	paths []string
	// ids are the places of the records by ID, for a day without fresh records, and cost is the memory that such a day takes, in bytes.
	ids  map[string]int
	cost int64

	mu sync.Mutex
	// merged is this day with the fresh records of the last request. It refers to the records of this day, and is dropped with it.
	merged *Day
}

// Day returns one day. A day about which nothing is known has no records. Errors: those of the store and of manifests.
func (c *Catalog) Day(ctx context.Context, instrument string, day wire.Day) (*Day, error) {
	s, err := c.readSnapshot(ctx, instrument)
	if err != nil {
		return nil, err
	}
	return c.day(ctx, s, s.find(day))
}

// DayTag returns the tag of a day without reading it. Errors: as Day.
func (c *Catalog) DayTag(ctx context.Context, instrument string, day wire.Day) (string, error) {
	s, err := c.readSnapshot(ctx, instrument)
	if err != nil {
		return "", err
	}
	return tagOf(s.find(day), s.epoch, s.fresh[day]), nil
}

// day returns a day with what is fresh.
func (c *Catalog) day(ctx context.Context, s snapshot, sum wire.RootDay) (*Day, error) {
	listed, err := c.listed(ctx, s.instrument, sum)
	fresh := s.fresh[sum.Day]
	if err != nil || len(fresh) == 0 {
		return listed, err
	}
	return c.mergeCached(listed, tagOf(sum, s.epoch, fresh), fresh), nil
}

// mergeCached returns a day with fresh notices laid over it: once, however many ask.
func (c *Catalog) mergeCached(listed *Day, tag string, fresh []*item) *Day {
	listed.mu.Lock()
	defer listed.mu.Unlock()
	if d := listed.merged; d != nil && d.Tag == tag {
		return d
	}
	d := c.merge(listed, fresh)
	d.Tag = tag
	listed.merged = d
	c.metrics.merges.Inc()
	c.cache.put(keyOf(listed), listed, listed.cost+int64(len(d.Records))*mergedCost+int64(len(fresh))*recordCost)
	return d
}

// tagOf returns the tag of a day. Files are written once, and so is a message that a stream takes at a time under a sequence.
func tagOf(sum wire.RootDay, epoch string, fresh []*item) string {
	// As fmt would write "%s %d %v" of the day, its version and its parts: each request asks.
	text := append(make([]byte, 0, 128), sum.Day...)
	text = strconv.AppendInt(append(text, ' '), int64(sum.Version), 10)
	text = append(text, " ["...)
	for i, r := range sum.Parts {
		if i > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendInt(append(text, '['), int64(r[0]), 10)
		text = append(strconv.AppendInt(append(text, ' '), int64(r[1]), 10), ']')
	}
	text = append(text, ']')
	if sum.Files != nil {
		text = append(text, sum.Files[:]...)
	}
	if len(fresh) > 0 {
		text = append(append(text, ' '), epoch...)
		for _, f := range []*item{fresh[0], fresh[len(fresh)-1]} {
			text = strconv.AppendUint(append(text, ' '), f.sequence, 10)
			text = strconv.AppendInt(append(text, ' '), f.at, 10)
		}
	}
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:12])
}

// keyOf returns the key of a day in the cache.
func keyOf(listed *Day) string { return "day/" + listed.Instrument + "/" + listed.Tag }

const (
	// recordCost is what a record takes beside its strings: itself, its place in the
	// slices, and in the map of identities.
	recordCost = int64(unsafe.Sizeof(wire.Record{})) + 96
	// mergedCost is what a record takes in a day that only refers to it, and emptyCost
	// what a day does without any.
	mergedCost = 24
	emptyCost  = 1024
)

// read takes the records of a day's files, about so many.
func (d *Day) read(records iter.Seq2[wire.Record, error], count int) error {
	cost := int64(emptyCost)
	all := make([]wire.Record, 0, max(0, min(count, 1<<20)))
	same := map[string]string{}
	intern := func(s *string) {
		if known, ok := same[*s]; ok {
			*s = known
		} else {
			same[*s] = *s
		}
	}
	for r, err := range records {
		if err != nil {
			return err
		}
		if r.State == wire.StateDuplicate {
			if !wire.IsNamedID(r.ID) && wire.IsNamedID(r.DuplicateOf) {
				d.duplicates = append(d.duplicates, &r)
				cost += recordCost + int64(len(r.ID)+len(r.Key)+len(r.Path)+len(r.DuplicateOf))
			}
			continue
		}
		if r.Key == r.ID {
			r.Key = r.ID
		} else {
			intern(&r.Key) // a pack's
		}
		for _, s := range []*string{&r.MediaType, &r.Gateway, &r.Incarnation, &r.Source, &r.Framing, &r.BroughtBy} {
			intern(s)
		}
		all = append(all, r)
		cost += recordCost + int64(len(r.ID)+len(r.Name)+len(r.Path)+len(r.Supersedes)+len(r.Reason)+len(r.ChangedBy))
		if r.Segment != nil {
			cost += int64(unsafe.Sizeof(*r.Segment))
		}
	}
	d.Records, d.paths = make([]*wire.Record, len(all)), make([]string, len(all))
	for i := range all {
		d.Records[i], d.paths[i] = &all[i], all[i].Published()
	}
	d.index()
	d.ids = make(map[string]int, len(d.Records))
	for i, r := range d.Records {
		d.ids[r.ID] = i
	}
	d.cost = cost + int64(cap(all)-len(all))*recordCost
	return nil
}

// TakenBack returns the objects without a name that were retracted or purged under the name that their bytes came with on the same day.
// They are not served, since they are duplicates, but mirrors may have copies of them from before.
func (d *Day) TakenBack() (all []*wire.Record) {
	if len(d.duplicates) == 0 {
		return nil
	}
	named := map[string]*wire.Record{}
	for _, r := range d.Records {
		if r.State == wire.StateRetracted || r.State == wire.StatePurged && (!r.Expired() || r.IsRetraction()) {
			named[r.ID] = r
		}
	}
	for _, duplicate := range d.duplicates {
		if original := named[duplicate.DuplicateOf]; original != nil {
			r := *duplicate
			r.State, r.Reason, r.ChangedBy, r.RetractedAt, r.PurgedAt, r.DuplicateOf = original.State, original.Reason, original.ChangedBy, original.RetractedAt, original.PurgedAt, ""
			all = append(all, &r)
		}
	}
	return all
}

// index puts the records in order.
func (d *Day) index() {
	sort.Sort(byPath{d})
	for _, r := range d.Records {
		for _, t := range []time.Time{r.ReceivedAt, r.ChangedAt()} {
			if t.After(d.Changed) {
				d.Changed = t
			}
		}
	}
}

// byPath sorts a day's records along with their paths.
type byPath struct{ *Day }

func (b byPath) Len() int { return len(b.Records) }
func (b byPath) Less(i, j int) bool {
	return cmp.Or(strings.Compare(b.paths[i], b.paths[j]), older(b.Records[i], b.Records[j])) < 0
}
func (b byPath) Swap(i, j int) {
	b.Records[i], b.Records[j] = b.Records[j], b.Records[i]
	b.paths[i], b.paths[j] = b.paths[j], b.paths[i]
}

// older orders the objects of one path.
func older(a, b *wire.Record) int {
	return cmp.Or(cmp.Compare(a.Version, b.Version), a.ReceivedAt.Compare(b.ReceivedAt), strings.Compare(a.ID, b.ID))
}

// at returns the records of a path.
func (d *Day) at(path string) []*wire.Record {
	from, found := slices.BinarySearch(d.paths, path)
	if !found {
		return nil
	}
	to := from + 1
	for to < len(d.paths) && d.paths[to] == path {
		to++
	}
	return d.Records[from:to]
}

// below returns the records whose paths begin with a prefix, and the paths.
func (d *Day) below(prefix string) ([]*wire.Record, []string) {
	from := sort.SearchStrings(d.paths, prefix)
	to := from + sort.Search(len(d.paths)-from, func(i int) bool { return !strings.HasPrefix(d.paths[from+i], prefix) })
	return d.Records[from:to], d.paths[from:to]
}

// Path returns the published path of the record with an index.
func (d *Day) Path(i int) string { return d.paths[i] }

// merge lays fresh notices over a day.
func (c *Catalog) merge(listed *Day, fresh []*item) *Day {
	d := &Day{Instrument: listed.Instrument, Day: listed.Day, Records: slices.Clone(listed.Records), paths: slices.Clone(listed.paths),
		duplicates: slices.Clip(listed.duplicates)}
	at := make(map[string]int, len(fresh)) // those that are added
	place := func(id string) (int, bool) {
		if i, added := at[id]; added {
			return i, true
		}
		i, known := listed.ids[id]
		return i, known
	}
	change := func(id string, to func(*wire.Record)) {
		if i, known := place(id); known && d.Records[i] != nil {
			r := *d.Records[i]
			to(&r)
			d.Records[i] = &r
		}
	}
	taken := make(map[string]bool, len(fresh)) // by path
	replaced := map[string]bool{}              // by ID: a newer version came first
	hidesRepeats := c.cfg.RepeatWindow != nil && c.cfg.RepeatWindow(listed.Instrument) > 0
	repeated := map[wire.Digest]bool{}
	if hidesRepeats {
		repeated = digestsIn(listed, fresh)
	}
	for _, f := range fresh {
		r := f.record
		switch _, known := place(r.ID); {
		case r.State == wire.StateDuplicate:
			if i, known := place(r.ID); known && d.Records[i] != nil {
				if gone := *d.Records[i]; !wire.IsNamedID(gone.ID) && wire.IsNamedID(r.DuplicateOf) {
					gone.DuplicateOf = r.DuplicateOf
					d.duplicates = append(d.duplicates, &gone)
				}
				d.Records[i] = nil
			}
		case r.IsChange():
			change(r.ID, func(record *wire.Record) { applyChange(record, &r) })
		case known || r.State != wire.StateCurrent:
		case c.mayMove(listed, taken, &r, f.path), hidesRepeats && mayRepeat(&r) && repeated[r.Digest]:
		default:
			if replaced[r.ID] || slices.ContainsFunc(listed.at(f.path), func(o *wire.Record) bool { return o.Supersedes == r.ID }) {
				r.State = wire.StateSuperseded
			}
			if r.Supersedes != "" {
				replaced[r.Supersedes] = true
				change(r.Supersedes, func(record *wire.Record) {
					if record.State == wire.StateCurrent {
						record.State = wire.StateSuperseded
					}
				})
			}
			taken[f.path], repeated[r.Digest] = true, true
			at[r.ID] = len(d.Records)
			d.Records, d.paths = append(d.Records, &r), append(d.paths, f.path)
		}
	}
	kept := 0
	for i, r := range d.Records {
		if r != nil {
			d.Records[kept], d.paths[kept] = r, d.paths[i]
			kept++
		}
	}
	d.Records, d.paths = d.Records[:kept], d.paths[:kept]
	d.index()
	return d
}

// mayRepeat says whether the manifest's writer may list a new object as a duplicate of another one.
func mayRepeat(r *wire.Record) bool {
	return r.State == wire.StateCurrent && r.Segment == nil && r.Name == ""
}

// digestsIn are those digests of fresh objects which may be duplicates that a listed day has.
func digestsIn(listed *Day, fresh []*item) map[wire.Digest]bool {
	asked := make(map[wire.Digest]bool, len(fresh))
	for _, f := range fresh {
		if mayRepeat(&f.record) {
			asked[f.record.Digest] = false
		}
	}
	if len(asked) == 0 {
		return asked
	}
	for _, r := range listed.Records {
		if _, found := asked[r.Digest]; found {
			asked[r.Digest] = true
		}
	}
	return asked
}

// applyChange changes a record as a notice of the archivist says. The state says what became
// of the object: one that was once restored keeps restoredAt in the manifests.
func applyChange(record, to *wire.Record) {
	switch {
	case record.State == wire.StatePurged && !(record.Expired() && to.State == wire.StatePurged):
		return
	case to.State == wire.StateRetracted:
		record.RetractedAt, record.RestoredAt, record.Origin = to.RetractedAt, nil, to.Origin
	case to.State == wire.StatePurged:
		record.PurgedAt = to.PurgedAt
	case record.State != wire.StateRetracted: // it is not hidden
		return
	default:
		record.RestoredAt = to.RestoredAt
	}
	record.State, record.Reason, record.ChangedBy = to.State, to.Reason, to.ChangedBy
}

// mayMove says whether the manifest's writer may publish a new object elsewhere:
// its path is taken, or is one with a sequence.
func (c *Catalog) mayMove(listed *Day, taken map[string]bool, r *wire.Record, path string) bool {
	if r.Supersedes == "" && r.Version < 2 {
		if taken[path] || len(listed.at(path)) > 0 {
			return true
		}
	}
	if r.Path != "" || c.cfg.Naming == nil || r.Segment != nil || r.Gateway == wire.ImportWriter {
		return false
	}
	t, err := naming.Parse(c.cfg.Naming(listed.Instrument))
	return err == nil && t.Has("sequence")
}
