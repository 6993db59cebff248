// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// daysAge is how long the days of an instrument are taken for what they were: each folder
// of a transfer asks for them.
const daysAge = 5 * time.Second

// errOver: an instrument is not for everybody any more.
var errOver = errors.New("it is not public any more")

// view is what everybody may see of the archive within the window, during one transfer.
type view struct {
	catalog  Catalog
	registry func() *registry.Snapshot
	// since is the beginning of the window: what was received before is not in it.
	since time.Time
	// memory is for what a folder holds, while it is listed.
	memory *semaphore.Weighted
	days   lastDays
	day    lastDay
}

// lastDays and lastDay are what was asked for last.
type lastDays struct {
	instrument string
	at         time.Time
	days       []wire.RootDay
}

type lastDay struct {
	at  time.Time
	day *catalog.Day
}

// file is a file in a folder: its data for a list, and where it is found again. It holds no record,
// which would keep all of its day in memory.
type file struct {
	name    string
	size    int64
	at      time.Time
	version int
	day     wire.Day
}

func fileOf(name string, r *wire.Record, day wire.Day) file {
	return file{strings.Clone(name), r.Size, r.ReceivedAt, r.Version, day}
}

// entries are the content of a folder: files in the order of their names, and folders by name with
// the last day of receipt of their content.
type entries struct {
	files []file
	dirs  map[string]wire.Day
	// left are the objects that no file can be named as.
	left leftOut
	// held is what is to be given back to the view's memory.
	held int64
}

// leftOut are objects that a list lacks though they are in the archive: how many, and one of them.
type leftOut struct {
	count   int
	example string
}

func (l *leftOut) add(count int, example string) {
	if l.count == 0 {
		l.example = example
	}
	l.count += count
}

// fileCost is what a file takes while its folder is listed: itself, its name, and its item,
// in slices that grow.
const fileCost = 2*(72+112) + 64

func (v *view) decide(in wire.InstrumentEntry, observed time.Time) bool {
	return access.Decide(access.Archive, access.Reader{}, in.Instrument, in.Access, observed, time.Now()) == access.Granted
}

// instrument returns what the registry says of one, if its archive is for everybody.
func (v *view) instrument(name string) (wire.InstrumentEntry, bool) {
	in, known := v.registry().Instruments[name]
	return in, known && v.decide(in, time.Time{})
}

// isPublic reports whether everybody may see an object.
func (v *view) isPublic(in wire.InstrumentEntry, r *wire.Record) bool {
	return r.State == wire.StateCurrent && !r.ReceivedAt.Before(v.since) && v.decide(in, r.ObservedEnd())
}

// withheld reports whether anything of an instrument may be under embargo.
func (v *view) withheld(in wire.InstrumentEntry) bool {
	return !v.decide(in, time.Now())
}

// instruments are the public instruments with data received in the window, with the last day of
// that data.
func (v *view) instruments(ctx context.Context) (map[string]wire.Day, error) {
	all := map[string]wire.Day{}
	for _, name := range slices.Sorted(maps.Keys(v.registry().Instruments)) {
		if _, public := v.instrument(name); !public || !isName(name) {
			continue
		}
		day, some, err := v.last(ctx, name)
		if err != nil {
			return nil, err
		}
		if some {
			all[name] = day
		}
	}
	return all, nil
}

// last returns the last day of receipt of what everybody may see of an instrument; not ok:
// there is nothing.
func (v *view) last(ctx context.Context, instrument string) (day wire.Day, ok bool, err error) {
	in, public := v.instrument(instrument)
	if !public {
		return "", false, nil
	}
	days, err := v.daysOf(ctx, instrument)
	if err != nil {
		return "", false, err
	}
	for _, d := range slices.Backward(days) {
		if !v.withheld(in) && v.inside(d) {
			return d.Day, true, nil
		}
		if some, err := v.holds(ctx, in, d, ""); err != nil || some {
			return d.Day, some, err
		}
	}
	return "", false, nil
}

// inside reports whether all of a day is in the window.
func (v *view) inside(d wire.RootDay) bool { return d.Day > wire.DayOf(v.since) }

// daysOf are the days of the window on which the archive holds data of an instrument, ascending.
func (v *view) daysOf(ctx context.Context, instrument string) ([]wire.RootDay, error) {
	if v.days.instrument == instrument && time.Since(v.days.at) < daysAge {
		return v.days.days, nil
	}
	all, err := v.catalog.Days(ctx, instrument)
	if err != nil {
		return nil, err
	}
	first := wire.DayOf(v.since)
	from := sort.Search(len(all), func(i int) bool { return all[i].Day >= first })
	days := slices.DeleteFunc(slices.Clone(all[from:]), func(d wire.RootDay) bool { return d.Entries == 0 })
	v.days = lastDays{instrument, time.Now(), days}
	return days, nil
}

// folder lists one of an instrument's. Asked says whether a client asks for an object that no file can be named as, by its path below the folder:
// others are not left out. The memory that the list holds is to be released (done). Errors: those of the catalog, errOver, errNoMemory.
func (v *view) folder(ctx context.Context, instrument, dir string, asked func(path string) bool) (entries, error) {
	in, public := v.instrument(instrument)
	if !public {
		return entries{}, errOver
	}
	days, err := v.daysOf(ctx, instrument)
	if err != nil {
		return entries{}, err
	}
	l := &lister{view: v, in: in, prefix: prefixOf(dir), asked: asked, entries: entries{dirs: map[string]wire.Day{}}}
	for _, d := range days {
		if err := l.add(ctx, d, dir); err != nil {
			v.done(l.held)
			return entries{}, err
		}
	}
	l.sort()
	return l.entries, nil
}

// done gives back what a list took.
func (v *view) done(held int64) { v.memory.Release(held) }

func prefixOf(dir string) string {
	if dir == "" {
		return ""
	}
	return dir + "/"
}

// lister makes the list of one folder.
type lister struct {
	*view
	in     wire.InstrumentEntry
	prefix string
	asked  func(path string) bool
	entries
	// several days have files in the folder.
	several bool
}

// holdsBelow reports whether a day has folders in this one.
func (l *lister) holdsBelow(d wire.RootDay) bool {
	at, _ := slices.BinarySearch(d.Dirs, l.prefix)
	return at < len(d.Dirs) && strings.HasPrefix(d.Dirs[at], l.prefix)
}

// add adds what a day has in a folder.
func (l *lister) add(ctx context.Context, d wire.RootDay, dir string) error {
	here := manifest.MayHold(d, dir)
	if !here && !l.holdsBelow(d) {
		return nil
	}
	if !here && !d.Deeper && l.inside(d) && !l.withheld(l.in) {
		return l.summed(d)
	}
	day, err := l.catalog.Day(ctx, l.in.Instrument, d.Day)
	if err != nil {
		return err
	}
	return l.read(day)
}

// summed takes the folders that a day's summary names.
func (l *lister) summed(d wire.RootDay) error {
	at, _ := slices.BinarySearch(d.Dirs, l.prefix)
	for _, dir := range d.Dirs[at:] {
		rest, below := strings.CutPrefix(dir, l.prefix)
		if !below {
			break
		}
		if name, _, _ := strings.Cut(rest, "/"); isName(name) {
			if err := l.grow(); err != nil {
				return err
			}
			l.dirs[name] = d.Day
		}
	}
	return nil
}

// grow counts the memory of one more entry.
func (l *lister) grow() error {
	if (len(l.files)+len(l.dirs))*fileCost >= int(l.held) {
		if !l.memory.TryAcquire(askEvery * fileCost) {
			return errNoMemory
		}
		l.held += askEvery * fileCost
	}
	return nil
}

// read takes what a day has in the folder.
func (l *lister) read(day *catalog.Day) error {
	from := sort.Search(len(day.Records), func(i int) bool { return day.Path(i) >= l.prefix })
	before := len(l.files)
	for i := from; i < len(day.Records); i++ {
		rest, below := strings.CutPrefix(day.Path(i), l.prefix)
		if !below {
			break
		}
		r := day.Records[i]
		name, _, deeper := strings.Cut(rest, "/")
		if !l.isPublic(l.in, r) {
			continue
		}
		if !isName(name) {
			if l.asked(rest) {
				l.left.add(1, day.Path(i))
			}
			continue
		}
		if err := l.grow(); err != nil {
			return err
		}
		if !deeper {
			l.files = append(l.files, fileOf(name, r, day.Day))
			continue
		}
		l.dirs[name] = max(l.dirs[name], day.Day)
		behind := l.prefix + name + "0" // the byte behind the slash
		i += sort.Search(len(day.Records)-i, func(n int) bool { return day.Path(i+n) >= behind }) - 1
	}
	if len(l.files) > before {
		l.several = l.several || before > 0
	}
	return nil
}

// sort puts files in order, and keeps the newest of files with one name.
func (l *lister) sort() {
	if l.several {
		slices.SortStableFunc(l.files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	}
	kept := l.files[:0]
	for _, f := range l.files {
		if n := len(kept); n > 0 && kept[n-1].name == f.name {
			if f.newer(kept[n-1]) {
				kept[n-1] = f
			}
			continue
		}
		kept = append(kept, f)
	}
	l.files = kept
}

// newer reports whether one of two files with the same name is to be sent.
func (f file) newer(other file) bool {
	if f.version != other.version {
		return f.version > other.version
	}
	return f.at.After(other.at)
}

// isName reports whether a name can be one element of a path at the client's.
func isName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= maxName && !strings.ContainsRune(name, 0)
}

// maxName is how long a name may be in most file systems, in bytes.
const maxName = 255

// forget lets go of the day that was looked at last.
func (v *view) forget() { v.day = lastDay{} }

// find returns the file of a path as it is now. Not ok: there is no public one any more. Errors:
// those of the catalog.
func (v *view) find(ctx context.Context, instrument, path string, of wire.Day) (r *wire.Record, ok bool, err error) {
	in, public := v.instrument(instrument)
	if !public {
		return nil, false, nil
	}
	day := v.day.day
	if day == nil || day.Instrument != instrument || day.Day != of || time.Since(v.day.at) > time.Second {
		if day, err = v.catalog.Day(ctx, instrument, of); err != nil {
			return nil, false, err
		}
		v.day = lastDay{time.Now(), day}
	}
	from := sort.Search(len(day.Records), func(i int) bool { return day.Path(i) >= path })
	for i := from; i < len(day.Records) && day.Path(i) == path; i++ { // the newest is the last
		if v.isPublic(in, day.Records[i]) {
			r = day.Records[i]
		}
	}
	return r, r != nil, nil
}

// findAll finds files as they are now, those of one day together. Errors: as find.
func (v *view) findAll(ctx context.Context, files []*fetched) error {
	order := slices.Clone(files)
	slices.SortStableFunc(order, func(a, b *fetched) int {
		return cmp.Or(strings.Compare(a.origin.instrument, b.origin.instrument), strings.Compare(string(a.origin.day), string(b.origin.day)))
	})
	for _, f := range order {
		r, found, err := v.find(ctx, f.origin.instrument, f.path, f.origin.day)
		if err != nil {
			return err
		}
		if found { // a copy, which does not keep all of its day in memory
			copied := *r
			f.record = &copied
		}
	}
	return nil
}

// findPath returns what a path of the module is. Errors: those of the catalog.
func (v *view) findPath(ctx context.Context, path string) (is kind, f file, day wire.Day, err error) {
	if path == "" {
		return isFolder, file{}, wire.DayOf(time.Now()), nil
	}
	instrument, rest, _ := strings.Cut(path, "/")
	in, public := v.instrument(instrument)
	if !public {
		return isMissing, file{}, "", nil
	}
	if rest == "" {
		if day, ok, err := v.last(ctx, instrument); err != nil || ok {
			return isFolder, file{}, day, err
		}
		return isMissing, file{}, "", nil
	}
	days, err := v.daysOf(ctx, instrument)
	if err != nil {
		return isMissing, file{}, "", err
	}
	name := rest[strings.LastIndexByte(rest, '/')+1:]
	for _, d := range slices.Backward(days) {
		if !manifest.MayHoldPath(d, rest) {
			continue
		}
		if r, ok, err := v.find(ctx, instrument, rest, d.Day); err != nil || ok {
			if err != nil {
				return isMissing, file{}, "", err
			}
			return isFile, fileOf(name, r, d.Day), d.Day, nil
		}
	}
	for _, d := range slices.Backward(days) {
		if some, err := v.holds(ctx, in, d, rest); err != nil || some {
			return isFolder, file{}, d.Day, err
		}
	}
	return isMissing, file{}, "", nil
}

// holds reports whether a day has anything in a folder that everybody may see.
func (v *view) holds(ctx context.Context, in wire.InstrumentEntry, d wire.RootDay, dir string) (bool, error) {
	l := &lister{view: v, in: in, prefix: prefixOf(dir), entries: entries{dirs: map[string]wire.Day{}}}
	if !manifest.MayHold(d, dir) && !l.holdsBelow(d) {
		return false, nil
	}
	if v.inside(d) && !v.withheld(in) && !d.Deeper {
		return true, nil
	}
	day, err := v.catalog.Day(ctx, in.Instrument, d.Day)
	if err != nil {
		return false, err
	}
	from := sort.Search(len(day.Records), func(i int) bool { return day.Path(i) >= l.prefix })
	for i := from; i < len(day.Records) && strings.HasPrefix(day.Path(i), l.prefix); i++ {
		if v.isPublic(in, day.Records[i]) {
			return true, nil
		}
	}
	return false, nil
}

// kind is what something is that a client asks for by its path.
type kind int

const (
	isMissing kind = iota
	isFile
	isFolder
)
