// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// choice says which objects of an instrument are meant.
type choice struct {
	selection
	narrowing
	what        string // empty: all that the narrowing holds
	version     int
	allVersions bool
}

// listedWithin is how soon what a gateway received is listed, where it does not wait in a spool.
const listedWithin = 2 * time.Minute

// mayMiss says whether several objects are meant, and some of them may have been received so shortly before now that they are not listed
// yet.
func (c *choice) mayMiss(now time.Time) bool {
	several := c.narrowing.isSet() || c.allVersions || strings.HasSuffix(c.what, "/") || digestPrefix.MatchString(c.what)
	listed := now.Add(-listedWithin)
	if before := c.receivedIn.before; !several || !before.IsZero() && !before.After(listed) {
		return false
	}
	days, err := c.days()
	return err == nil && (days.last == "" || days.last >= wire.DayOf(listed))
}

// matches says whether a record is meant, and whether by its path, which several
// versions have.
func (c *choice) matches(r *wire.Record) (byPath, matches bool) {
	published := r.Published()
	switch {
	case c.what == "":
		return false, true
	case strings.HasSuffix(c.what, "/"):
		return true, strings.HasPrefix(published, c.what)
	case published == c.what || r.Name != "" && r.Name == c.what:
		return true, true
	default:
		return false, r.ID == c.what || r.Key == c.what && !r.InPack() ||
			digestPrefix.MatchString(c.what) && strings.HasPrefix(r.Digest.String(), c.what)
	}
}

// holdsVersion says whether the choice means a version; if it names none, find selects the current one later.
func (c *choice) holdsVersion(r *wire.Record) bool {
	return c.version == 0 || c.version == max(r.Version, 1)
}

// find returns the objects that are meant, and that the verb can be done to.
func (r *request) find(ctx context.Context) ([]wire.Record, error) {
	var found, copies []wire.Record
	others, segments := map[wire.State]int{}, 0
	anySource := r.choice.narrowing
	anySource.from = ""
	for n, err := range r.choice.records(ctx, r.store, r.site) {
		if err != nil {
			return nil, err
		}
		rec := n.Record
		if rec.State == wire.StateDuplicate {
			if rec.InPack() { // its bytes are there until the pack is compacted
				copies = append(copies, rec)
			}
			continue
		}
		if _, matches := r.choice.matches(&rec); !matches || !anySource.holds(&rec) || !r.choice.holdsVersion(&rec) {
			continue
		}
		if !r.choice.narrowing.holds(&rec) {
			if rec.Segment != nil && r.verb.takes(&rec) {
				segments++
			}
			continue
		}
		if !r.verb.takes(&rec) {
			others[rec.State]++
			continue
		}
		found = append(found, rec)
	}
	found = r.choice.current(found)
	if len(found) == 0 {
		return nil, r.nothing(others, segments)
	}
	if err := r.choice.checkOneDigest(found); err != nil {
		return nil, err
	}
	if r.verb == purge {
		found = append(found, copiesOf(found, copies)...)
	}
	return found, nil
}

// takes says whether the verb changes an object. Expired objects can be purged: mirrors that keep a copy purge it, too.
func (v verb) takes(r *wire.Record) bool {
	s := r.State
	switch v {
	case retract:
		return s == wire.StateCurrent || s == wire.StateSuperseded
	case restore:
		return s == wire.StateRetracted
	default:
		return s != wire.StatePurged || r.Expired()
	}
}

// current leaves of each path the version that is published, or was last, unless
// versions were asked for.
func (c *choice) current(found []wire.Record) []wire.Record {
	if c.allVersions || c.version != 0 {
		return found
	}
	best := map[string]int{}
	var kept []wire.Record
	for _, r := range found {
		if byPath, _ := c.matches(&r); !byPath {
			kept = append(kept, r)
			continue
		}
		path := r.Published()
		i, known := best[path]
		if !known {
			best[path] = len(kept)
			kept = append(kept, r)
		} else if newerVersion(&r, &kept[i]) {
			kept[i] = r
		}
	}
	return kept
}

func newerVersion(a, b *wire.Record) bool {
	rank := func(r *wire.Record) int {
		return slices.Index([]wire.State{wire.StateSuperseded, wire.StateRetracted, wire.StateCurrent}, r.State)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Version, b.Version), a.ReceivedAt.Compare(b.ReceivedAt)) > 0
}

// checkOneDigest refuses the beginning of several digests.
func (c *choice) checkOneDigest(found []wire.Record) error {
	if !digestPrefix.MatchString(c.what) {
		return nil
	}
	for i := range found {
		if byPath, _ := c.matches(&found[i]); !byPath && found[i].Digest != found[0].Digest {
			return fmt.Errorf("several objects begin with %s: %s and %s: give more digits", c.what, found[0].Digest, found[i].Digest)
		}
	}
	return nil
}

// copiesOf returns the duplicates of objects whose bytes are in packs.
func copiesOf(found, copies []wire.Record) []wire.Record {
	digests := map[wire.Digest]bool{}
	for i := range found {
		digests[found[i].Digest] = true
	}
	return slices.DeleteFunc(copies, func(c wire.Record) bool { return !digests[c.Digest] })
}

// said is how the command line names the objects.
func (c *choice) said() string {
	return strings.TrimSpace(c.what + " " + c.narrowing.String())
}

func (r *request) nothing(others map[wire.State]int, segments int) error {
	for state, count := range others {
		next := map[wire.State]string{
			wire.StateRetracted: "substorm archive restore shows it again",
			wire.StatePurged:    "its bytes are gone, and only its sender can send them again",
			wire.StateCurrent:   "it is given out as it is",
		}[state]
		return fmt.Errorf("nothing to %s: %s is %s of instrument %s (%d objects): %s", r.verb.name, r.choice.said(), state, r.instrument, count,
			cmp.Or(next, "--version names another version"))
	}
	if segments > 0 {
		return fmt.Errorf("nothing to %s: --from selects no datagrams, and without it the choice is only segments of instrument %s (%d), which do not name the senders of their datagrams: "+
			"--received, without --from, selects segments with the datagrams of all senders", r.verb.name, r.instrument, segments)
	}
	return fmt.Errorf("the archive of site %s lists nothing that %q means of instrument %s: substorm archive ls -i %s -o wide shows paths and digests; "+
		"what is new is listed within a minute", r.site, r.choice.said(), r.instrument, r.instrument)
}
