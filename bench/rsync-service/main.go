// SPDX-License-Identifier: Apache-2.0

// Command rsync-service measures Debian's rsync that copies 37,655 files from feed-server, and again, and again at ten times the files, beside rsync's own daemon with the same files in a folder.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/bench/internal/web"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// filesVariable makes smaller trees: the small one has so many files, the large one ten
	// times as many.
	filesVariable = "SUBSTORM_BENCH_RSYNC_FILES"
	// files and bytes are those of table 6 of the study on mirrors.
	files, bytesOfAll = 37_655, 53_000_000
	times             = 10
	// moreMemory is the memory that a window of ten times the files may take, divided by the memory for one.
	moreMemory = 1.2
	// enough for feed-server to hold all manifests, and little of one, in bytes.
	enough = 4 << 30
	little = 48 << 20
	// repeats of the runs by which memory is measured.
	repeats = 3
)

// The cases and candidates, and the instruments whose trees the cases are about.
const (
	first, again, again10 = "first copy", "again", "again, ten times the files"
	ours, peer            = "feed-server", "rsyncd"
	small, large          = "small", "large"
)

func main() { lab.Run(run) }

func run(l *lab.Lab) error {
	ctx := context.Background()
	count, err := lab.Number(filesVariable, files, 100)
	if err != nil {
		return err
	}
	rsyncd, err := startDaemon(l)
	if err != nil {
		return err
	}
	address := testenv.Loopback(testenv.FreePort(l))
	flags := []string{"--rsync-address=" + address, "--archive-size=" + strconv.Itoa(enough)}
	site := web.NewSite(l, web.Options{Instruments: []wire.InstrumentEntry{web.Camera(small, time.Minute), web.Camera(large, time.Minute)}, Flags: flags})
	b := &bench{
		lab: l, site: site, report: report.New("rsync-service", report.Rounds(5)), dir: l.Disk(), files: count,
		modules: map[string]string{ours: "rsync://" + address + "/" + web.SiteCode + "/", peer: rsyncd.module},
		pids:    map[string]func() int{ours: func() int { return site.Server.PID() }, peer: func() int { return rsyncd.pid }},
	}
	f := filler{site: site, root: rsyncd.root}
	for name, n := range map[string]int{small: count, large: times * count} {
		if err := f.fill(ctx, name, n); err != nil {
			return err
		}
	}
	if err := b.measure(ctx); err != nil {
		return err
	}
	memory, err := b.memory(ctx, address)
	if err != nil {
		return err
	}
	b.tell(memory)
	return b.report.Finish()
}

type bench struct {
	lab     *lab.Lab
	site    *web.Site
	report  *report.Report
	dir     string
	files   int
	round   int
	modules map[string]string
	pids    map[string]func() int
}

func (b *bench) measure(ctx context.Context) error {
	for _, candidate := range []string{ours, peer} { // the copies of the large tree are not measured
		if _, err := b.copied(ctx, candidate, large, times*b.files); err != nil {
			return err
		}
	}
	order := []string{ours, peer}
	for round := range b.report.Each() {
		order[0], order[1] = order[1], order[0]
		b.round = round
		for _, candidate := range order {
			if err := b.time(ctx, first, candidate, small, b.files); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		for name, tree := range map[string]string{again: small, again10: large} {
			for _, candidate := range order {
				if err := b.time(ctx, name, candidate, tree, 0); err != nil {
					return fmt.Errorf("round %d: %w", round, err)
				}
			}
		}
	}
	return nil
}

// time measures a run that is to transfer so many files.
func (b *bench) time(ctx context.Context, name, candidate, tree string, transfers int) error {
	before, err := process.Time(b.pids[candidate]())
	if err != nil {
		return err
	}
	unix.Sync() // what others left to be written is not this candidate's
	took, err := b.copied(ctx, candidate, tree, transfers)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", name, candidate, err)
	}
	b.report.Add(name, candidate, "s", took.Seconds())
	if candidate == ours { // rsyncd works in processes of their own, which end
		after, err := process.Time(b.pids[candidate]())
		if err != nil {
			return err
		}
		b.report.Add(name, candidate+", CPU", "s", (after - before).Seconds())
	}
	return nil
}

// copyOf is the folder of a copy. Each round has another one of the small tree: none is removed (see lab.Disk).
func (b *bench) copyOf(candidate, tree string) string {
	if tree == small {
		tree += strconv.Itoa(b.round)
	}
	return filepath.Join(b.dir, candidate, tree)
}

// copied runs rsync, and fails where it transfers another number of files.
func (b *bench) copied(ctx context.Context, candidate, tree string, transfers int) (time.Duration, error) {
	to := b.copyOf(candidate, tree)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return 0, err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "rsync", "-a", "--stats", "--no-motd", "--no-human-readable", b.modules[candidate]+tree+"/", to)
	cmd.Stdout, cmd.Stderr = &said, &said
	begun := time.Now()
	err := cmd.Run()
	took := time.Since(begun)
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, said.Bytes())
	}
	if line := fmt.Sprintf("Number of regular files transferred: %d\n", transfers); !bytes.Contains(said.Bytes(), []byte(line)) {
		return 0, fmt.Errorf("it is to transfer %d files: %s", transfers, said.Bytes())
	}
	return took, nil
}

// memory returns the peak of feed-server's over the large tree by that over the small one. It
// is another one, which holds little of the manifests, and has seen both.
func (b *bench) memory(ctx context.Context, address string) (float64, error) {
	b.site.Server.Stop()
	b.site.Start("--rsync-address="+address, "--archive-size="+strconv.Itoa(little))
	for _, tree := range []string{small, large} {
		if _, err := b.copied(ctx, ours, tree, 0); err != nil {
			return 0, err
		}
	}
	var peaks []float64
	for _, tree := range []string{small, large} {
		if err := process.ForgetPeak(b.site.Server.PID()); err != nil {
			return 0, err
		}
		for range repeats {
			if _, err := b.copied(ctx, ours, tree, 0); err != nil {
				return 0, err
			}
		}
		peak, err := process.PeakMiB(b.site.Server.PID())
		if err != nil {
			return 0, err
		}
		b.report.Add("memory, "+tree+" tree", ours, "MiB", peak)
		peaks = append(peaks, peak)
	}
	if peaks[0] <= 0 {
		return 0, errors.New("no memory was measured")
	}
	return peaks[1] / peaks[0], nil
}

func (b *bench) tell(memory float64) {
	r := b.report
	r.Note("%d files, %d B in all, of %d days, in packs of 8 MiB; and %d files. rsync -a over loopback, its copies on a file system of their own.",
		b.files, b.files*(bytesOfAll/files), days, times*b.files)
	r.Note("feed-server on one core, with all manifests in memory; its bytes come from the S3 server. rsyncd has them in the page cache.")
	faster := func(name, of string, goal float64) {
		r.Compare(name, []report.Pair{{Case: of, Candidate: peer, OfCase: of, OfCandidate: ours}}, ">=", goal)
	}
	faster("first/rsyncd", first, 0.8)
	faster("again/rsyncd", again, 1.5)
	faster("again-10/rsyncd", again10, 1.5)
	r.Bound("memory,10-times-the-files/one", []float64{memory}, "<=", moreMemory)
}
