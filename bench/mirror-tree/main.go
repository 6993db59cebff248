// SPDX-License-Identifier: Apache-2.0

// Command mirror-tree measures copies of a tree of 37,655 files, and again after four changed, beside rsync with its daemon, wget and rclone, over loopback and behind 30 and 110 ms.
//
// Copies are made by `substorm mirror pull`. It is the work of the RTEMP study's table 6. The tree has 53 MB, 20 instruments with ten days each, and compressible text beside noise. A Site in
// one process (`substorm up`) has it by `substorm import`; rsync's daemon and nginx have the same files in a folder. Behind a delay the
// clients are at the far end of a link that delays packets (internal/testenv.Link), so TCP sees it. Each copy begins with an empty folder; files
// that were read before are in the page cache. Copies are made on a file system of their own,
// and none is removed before the end (see lab.Disk). Substorm's copies are on the disk when a run ends, those of the others are not, and are
// written before the next run begins. "The files alone" are made from memory by one process: what no copy can do without.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/internal/testenv"
)

var (
	files   = flag.Int("files", 37_655, "how many files the tree has")
	days    = flag.Int("days", 10, "over how many days they are spread")
	rounds  = flag.Int("rounds", report.Rounds(5), "how often each is measured")
	delays  = flag.String("delays", "0,30ms,110ms", "round trips of the links; 0 is loopback")
	again   = flag.Bool("again-only", false, "measure only what follows the first copy, as for a tree of ten times the files")
	oneSlow = flag.Bool("others", true, "measure wget and rclone too, once and over loopback, as they ask for each file by itself")
)

// The candidates.
const (
	ours     = "substorm mirror pull"
	rsyncA   = "rsync -a"
	rsyncAZ  = "rsync -az"
	wget     = "wget -r -N"
	rclone   = "rclone copy"
	alone    = "the files alone"
	seconds  = "s"
	megabyte = "MB"
	changed  = 4
)

func main() {
	lab.RunIsolated(run)
}

func run(l *lab.Lab) error {
	flag.Parse()
	links, err := parseDelays(*delays)
	if err != nil || *files < changed || *days < 1 || *rounds < 1 {
		return errors.Join(err, errors.New("-files is at least 4, -days and -rounds at least 1"))
	}
	t, err := newTree(l.TempDir(), *files, *days)
	if err != nil {
		return err
	}
	site, err := startSite(l, t)
	if err != nil {
		return err
	}
	peers, err := startPeers(l, t)
	if err != nil {
		return err
	}
	copies := l.Disk()
	r := report.New("mirror-tree", *rounds)
	r.Note("The tree has %d files and %.1f MB, in %d instruments with %d days each.", *files, float64(t.bytes)/1e6, instruments, *days)
	if *oneSlow && !*again {
		if err := others(r, peers, copies); err != nil {
			return err
		}
	}
	for round := range r.Each() {
		for _, roundTrip := range links {
			if err := l.Part(func() error { return measure(l, r, site, peers, t, roundTrip, round, copies) }); err != nil {
				return err
			}
		}
	}
	conclude(r, links)
	return r.Finish()
}

// way is how clients reach the servers.
type way struct {
	link *testenv.Link // nil: by loopback
}

func (w way) host() string {
	if w.link == nil {
		return "127.0.0.1"
	}
	return w.link.Near()
}

// measure makes first copies and, after some files changed, second ones, by each candidate in turn.
func measure(l *lab.Lab, r *report.Report, site *site, peers *peers, t *tree, roundTrip time.Duration, round int, copies string) error {
	w, name := way{}, "loopback"
	if roundTrip > 0 {
		w.link, name = testenv.NewLink(l, testenv.LinkOptions{RoundTrip: roundTrip}), roundTrip.String()
	}
	candidates := []candidate{{name: ours, copy: site.pull}, {name: rsyncA, copy: peers.rsync("-a")}, {name: rsyncAZ, copy: peers.rsync("-az")}}
	for i := range candidates { // who is first changes
		candidates[i].dir = filepath.Join(copies, fmt.Sprintf("%d-%s-%d", round, name, i))
	}
	turn := func(each func(c candidate) error) error {
		for i := range candidates {
			if err := each(candidates[(i+round)%len(candidates)]); err != nil {
				return err
			}
		}
		return nil
	}
	err := turn(func(c candidate) error { return c.time(r, "first, "+name, w, t, !*again) })
	if err != nil {
		return err
	}
	if roundTrip == 0 && !*again {
		unix.Sync()
		took, err := t.make(filepath.Join(copies, fmt.Sprintf("%d-%s", round, alone)))
		if err != nil {
			return err
		}
		r.Add("first, "+name, alone, seconds, took.Seconds())
	}
	if err := t.change(changed); err != nil {
		return err
	}
	if err := site.importTree(t); err != nil {
		return err
	}
	return turn(func(c candidate) error { return c.time(r, "again, "+name, w, t, true) })
}

// candidate copies the tree into a folder.
type candidate struct {
	name string
	copy func(ctx context.Context, w way, dir string) error
	dir  string
}

// time runs a candidate and, with tell, notes how long that took and what went over the link.
func (c candidate) time(r *report.Report, name string, w way, t *tree, tell bool) error {
	var before int64
	if w.link != nil {
		before = w.link.Bytes()
	}
	unix.Sync() // what others left to be written is not this candidate's
	begun := time.Now()
	if err := c.copy(context.Background(), w, c.dir); err != nil {
		return fmt.Errorf("%s, %s: %w", name, c.name, err)
	}
	took := time.Since(begun)
	if tell {
		r.Add(name, c.name, seconds, took.Seconds())
		if w.link != nil {
			r.Add(name+", on the wire", c.name, megabyte, float64(w.link.Bytes()-before)/1e6)
			if w.link.Dropped() > 0 {
				return fmt.Errorf("the link dropped %d packets", w.link.Dropped())
			}
		}
	}
	return t.compare(c.dir, c.name == ours)
}

// others measures those that ask for each file by itself.
func others(r *report.Report, p *peers, dir string) error {
	for _, c := range []candidate{{name: wget, copy: p.wget}, {name: rclone, copy: p.rclone}} {
		for _, name := range []string{"first, loopback", "again with nothing changed, loopback"} {
			c.dir = filepath.Join(dir, c.name)
			begun := time.Now()
			if err := c.copy(context.Background(), way{}, c.dir); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			r.Add(name, c.name, seconds, time.Since(begun).Seconds())
		}
	}
	return nil
}

func conclude(r *report.Report, links []time.Duration) {
	for _, roundTrip := range links {
		name, most, short := roundTrip.String(), 0.5, roundTrip.String()
		if roundTrip == 0 {
			name, most, short = "loopback", 0.1, "loopback"
		}
		if !*again {
			r.Bound("first-"+short, againstBetter(r, "first, "+name), "<=", 0.5)
		}
		r.Bound("again-"+short, againstBetter(r, "again, "+name), "<=", most)
		if roundTrip > 0 {
			var trips []float64
			for _, s := range r.Values("again, "+name, ours) {
				trips = append(trips, s/roundTrip.Seconds())
			}
			r.Bound("again-"+short+"-round-trips", trips, "<=", 7)
			for _, c := range []string{"first", "again"} {
				if c == "first" && *again {
					continue
				}
				wire := c + ", " + name + ", on the wire"
				r.Compare(c+"-"+short+"-bytes", []report.Pair{{Case: wire, Candidate: ours, OfCase: wire, OfCandidate: rsyncAZ}}, "<=", 1)
			}
		}
	}
}

// againstBetter is our time divided by the time of the faster one of both rsyncs, round by round.
func againstBetter(r *report.Report, name string) (all []float64) {
	a, z, o := r.Values(name, rsyncA), r.Values(name, rsyncAZ), r.Values(name, ours)
	for i := range o {
		all = append(all, o[i]/min(a[i], z[i]))
	}
	return all
}
