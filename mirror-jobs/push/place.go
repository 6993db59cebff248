// SPDX-License-Identifier: Apache-2.0

package push

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// Place is where copies lie, and how they are named there. The book keeps those that copies were ever brought to: what is retracted or
// purged later is asked of each of them.
type Place struct {
	Versions string `json:"versions"`
	Template string `json:"template,omitempty"`
	// Station of the Instrument, which a template may hold.
	Station string            `json:"station,omitempty"`
	S3      *wire.MirrorS3    `json:"s3,omitempty"`
	Rsync   *wire.MirrorRsync `json:"rsync,omitempty"`
}

func placeOf(e *wire.MirrorEntry, in wire.InstrumentEntry) Place {
	p := Place{Versions: e.Selection.Versions, Template: e.Template, S3: e.S3, Rsync: e.Rsync}
	if e.Template != "" {
		p.Station = in.Station
	}
	return p
}

// Name tells places apart.
func (p Place) Name() string {
	text := fmt.Sprintf("%s %s", p.Versions, p.Template)
	if p.Template != "" {
		text += " " + p.Station
	}
	return short(text + p.server())
}

// server identifies the folder of a server, or the part of a bucket.
func (p Place) server() string {
	switch {
	case p.S3 != nil:
		return fmt.Sprintf(" %s %s %s", p.S3.Endpoint, p.S3.Bucket, p.S3.Prefix)
	case p.Rsync != nil && p.Rsync.Daemon != nil:
		return fmt.Sprintf(" %s %s %s", p.Rsync.Daemon.Address, p.Rsync.Daemon.Module, p.Rsync.Daemon.Path)
	case p.Rsync != nil && p.Rsync.SSH != nil:
		return fmt.Sprintf(" %s %d %s %s", p.Rsync.SSH.Host, p.Rsync.SSH.Port, p.Rsync.SSH.User, p.Rsync.SSH.Path)
	}
	return ""
}

// folder is the server of a place, and the folder or prefix there, as a path.
func (p Place) folder() string {
	server, folder := "", ""
	switch {
	case p.S3 != nil:
		server, folder = strings.TrimRight(p.S3.Endpoint, "/"), p.S3.Bucket+"/"+p.S3.Prefix
	case p.Rsync != nil && p.Rsync.Daemon != nil:
		server, folder = p.Rsync.Daemon.Address, p.Rsync.Daemon.Module+"/"+p.Rsync.Daemon.Path
	case p.Rsync != nil && p.Rsync.SSH != nil:
		server, folder = fmt.Sprintf("%s:%d", p.Rsync.SSH.Host, p.Rsync.SSH.Port), p.Rsync.SSH.Path
		if !strings.HasPrefix(folder, "/") { // it lies in the home of the user there
			folder = "~" + p.Rsync.SSH.User + "/" + folder
		}
	}
	return strings.ToLower(server) + path.Join("/", folder) + "/"
}

// takenBy is the other MirrorPartner of the Site whose copies are brought to a place now, or into a folder of it or above it; empty: none.
func (r *run) takenBy(p Place) string {
	here := p.folder()
	for name, other := range r.Registry().Mirrors {
		if name == r.Entry.Partner || other.Direction != wire.MirrorPush {
			continue
		}
		if there := placeOf(&other, wire.InstrumentEntry{}).folder(); strings.HasPrefix(here, there) || strings.HasPrefix(there, here) {
			return name
		}
	}
	return ""
}

// server is what copies are removed from.
type server struct {
	mover Mover
	// silent is why it cannot be asked what it has, and refused why it lets nothing be removed.
	silent, refused error
	// removes: it was asked whether it lets files be removed, and did not say no.
	removes bool
}

// place is a Place as a run knows it.
type place struct {
	Place
	*server
	template *naming.Template
	// former: copies were brought there before spec was changed.
	former bool
	// taken: another MirrorPartner has it now.
	taken bool
}

// currentPlace is where the copies of an instrument lie now.
func (r *run) currentPlace(in wire.InstrumentEntry) *place {
	return &place{Place: placeOf(&r.Entry, in), server: r.server, template: r.template}
}

// keepPlaces notes where the run brings copies.
func (r *run) keepPlaces(ctx context.Context) error {
	kept := map[string]bool{}
	for _, name := range r.Entry.Selection.Instruments {
		in, declared := r.Registry().Instruments[name]
		if p := placeOf(&r.Entry, in); declared && !kept[p.Name()] {
			kept[p.Name()] = true
			if err := r.Book.KeepPlace(ctx, p.Name(), p); err != nil {
				return err
			}
		}
	}
	return nil
}

// formerPlace is a place that copies were brought to before. One that cannot be asked refuses all.
func (r *run) formerPlace(ctx context.Context, name string) (*place, error) {
	if p, known := r.former[name]; known {
		return p, nil
	}
	stored, found, err := r.Book.Place(ctx, name)
	if err != nil {
		return nil, err
	}
	p := &place{Place: stored, server: &server{}, former: true}
	switch {
	case !found:
		p.silent = errors.New("copies were brought to another place, which is not known any more")
	case r.At == nil:
		p.silent = errors.New("only the current place can be reached")
	case stored.server() == placeOf(&r.Entry, wire.InstrumentEntry{}).server():
		p.server = r.server
	default:
		if p.mover, err = r.At(ctx, stored); err != nil {
			p.silent = fmt.Errorf("at the former place%s: %w", stored.server(), err)
		}
	}
	if other := r.takenBy(stored); found && p.server != r.server && other != "" {
		p.taken, p.refused = true, fmt.Errorf("its folder now belongs to the MirrorPartner %q, which may have brought this copy: "+
			"remove it there by hand, if that MirrorPartner is not to have it", other)
		r.Logger.Warn("a former place of copies now belongs to another MirrorPartner: nothing is removed there", "place", strings.TrimSpace(stored.server()), "partner", other)
	}
	if stored.Template != "" {
		if p.template, err = naming.Parse(stored.Template); err != nil {
			p.silent = err
		}
	}
	r.former[name] = p
	return p, nil
}

// Left are copies at a place that none are brought to any more.
type Left struct {
	Place   string `json:"place"`
	Objects int    `json:"objects,omitempty"`
}

// seen is what is known of a day about the place where copies lie now. Was is what the book said.
type seen struct {
	KnownDay
	was KnownDay
}

// seen is what is known of a day, where that is about the place where copies lie now; else what is left elsewhere.
func (r *run) seen(in wire.InstrumentEntry, known KnownDay) seen {
	here := placeOf(&r.Entry, in).Name()
	if known.Place == here || known.Place == "" && !r.policy.AllVersions { // books of the version before did not tell where
		return seen{known, known}
	}
	result := KnownDay{Left: slices.Clone(known.Left)}
	if known.Place != "" {
		result.Left = append(result.Left, Left{known.Place, known.Objects})
	}
	if i := slices.IndexFunc(result.Left, func(l Left) bool { return l.Place == here }); i >= 0 { // copies lie here from an earlier time
		result.Place, result.Begun, result.Objects = here, true, result.Left[i].Objects
		result.Left = slices.Delete(result.Left, i, i+1)
	}
	return seen{result, known}
}

// isEmpty says that nothing is known of the place where copies lie now.
func (k KnownDay) isEmpty() bool {
	return k.Place == "" && k.Tag == "" && !k.Begun && k.Count == 0
}

// copies are those that the partner has, at whatever place.
func (k KnownDay) copies() int {
	n := k.Objects
	for _, l := range k.Left {
		n += l.Objects
	}
	return n
}

// layout is how the copies of a day are named at a place.
type layout struct {
	*place
	in wire.InstrumentEntry
	// numbers, by ID, are those of objects that have the same path by the template as an earlier one.
	numbers map[string]int
}

// layout names the copies of a day at a place.
func (d *pushed) layout(p *place) layout {
	l := layout{place: p, in: d.in}
	l.numbers = l.numbersOf(d.objects)
	return l
}

// numbersOf numbers objects of a day that have the same path by the template, in the order of receipt and whatever became of them, so
// that a path belongs to one object forever. Only a template with {digest} and neither {id} nor {name} leaves any: {id} and {name}
// differ, and the day is one of receipt, in the template too (at).
func (l layout) numbersOf(objects []plan.PushObject) map[string]int {
	if l.template == nil || l.own() {
		return nil
	}
	records := make([]*wire.Record, len(objects))
	for i := range objects {
		records[i] = objects[i].Record
	}
	slices.SortFunc(records, wire.ByReceipt)
	numbers, seen := map[string]int{}, make(map[string]int, len(records))
	for _, record := range records {
		text, err := l.write(record, "")
		if err != nil {
			continue
		}
		if seen[text]++; seen[text] > 1 {
			numbers[record.ID] = seen[text]
		}
	}
	return numbers
}

// own says whether the template gives each object of an instrument a path of its own.
func (l layout) own() bool { return l.template.Has("id") || l.template.Has("name") }

// shared says whether the path of an object may also be another version's. Newer: another object is published under its path. By a
// template, versions that are published under several paths may have one path.
func (l layout) shared(record *wire.Record, newer bool) bool {
	if l.template == nil {
		return newer
	}
	return record.Name != "" && l.template.Has("name") && !l.template.Has("id")
}

// write returns the path of an object by the template. One without a name that the template asks for is named by its ID: what it is
// published under may end as the path of another day does.
func (l layout) write(record *wire.Record, published string) (string, error) {
	id := wire.ShortID(record.ReceivedAt, record.Digest)
	return l.template.Write(naming.Values{
		Time: l.at(record), Station: l.Station, Instrument: l.in.Instrument, Name: cmp.Or(record.Name, id+path.Ext(published)),
		ID: id, Digest: record.Digest.String(),
	})
}

// versions begins the paths of superseded versions at a partner, as it does in the archive's keys.
const versions = "v/"

// ofVersion is a path that is kept for superseded versions.
var ofVersion = regexp.MustCompile(`^v/[0-9]+/`)

// all says whether superseded versions lie there, too.
func (p *place) all() bool { return p.Versions == wire.MirrorVersionsAll }

// pathOf is where a copy of an object of the day lies, as its current version or as an older one; false where it has no path.
func (l layout) pathOf(o *plan.PushObject, older bool) (string, bool) {
	version := ""
	if older {
		version = versions + strconv.Itoa(max(1, o.Record.Version)) + "/"
	}
	own := o.Path
	p := l.in.Instrument + "/" + version + own
	if l.template != nil {
		text, err := l.write(o.Record, o.Path)
		if err != nil {
			return "", false
		}
		own = objectpath.Told(text, l.numbers[o.Record.ID])
		p = version + own
	}
	if l.all() && ofVersion.MatchString(own) {
		return "", false
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "\x00\n\r") || len(part) > 255 {
			return "", false
		}
	}
	return p, true
}

// at is the time that a path contains. If paths are unique only among the objects received on one day, the observation counts only if it
// was that day.
func (l layout) at(record *wire.Record) time.Time {
	if at := record.ObservedFrom; at != nil && (l.own() || wire.DayOf(*at) == wire.DayOf(record.ReceivedAt)) {
		return *at
	}
	return record.ReceivedAt
}
