// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/internal/nameclaims"
	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/internal/wire"
)

// saveEvery is how often the ledger is written.
const saveEvery = 5 * time.Second

// Config says what to import.
type Config struct {
	Backend backend.Options

	// Tree is a folder, or with InPlace BUCKET[/PREFIX].
	Tree         string
	InPlace      bool
	Instrument   string
	NameTemplate string
	// Checksums is a file that sha256sum wrote; empty for none. Its digests are
	// compared with the bytes, or with TrustChecksums taken for true unread.
	Checksums      string
	TrustChecksums bool
	// Settle is how long a file that is imported must not have been written to.
	Settle time.Duration
	// Parallel files are read at the same time.
	Parallel int
	// Wait bounds the waiting for another import and for the manifests.
	Wait   time.Duration
	DryRun bool

	Format output.Format
	Quiet  bool
	// Out gets the report, Notes the progress.
	Out, Notes io.Writer
}

// importer is one run.
type importer struct {
	site, instrument, run string
	wait                  time.Duration
	parallel              int
	trust, dryRun         bool

	store     objectstore.Store
	js        jetstream.JetStream
	lease     *stream.Lease
	report    *report
	source    source
	fit       fitting
	checksums *checksums
	known     *known
	names     jetstream.KeyValue
	folders   nameclaims.Folders
	ledger    *ledger
	announcer *announcer
}

// Run imports. Objects that it registered before an error stay registered. Errors: of the configuration and of
// what keeps store or JetStream from answering; after all else was imported, that something could not be placed.
func Run(ctx context.Context, cfg Config) error {
	template, err := naming.Parse(cfg.NameTemplate)
	if err != nil {
		return usage.Errorf("%w", err)
	}
	b, err := backend.Open(ctx, cfg.Backend)
	if err != nil {
		return err
	}
	defer b.Close()
	im := &importer{site: b.Code, instrument: cfg.Instrument, run: newRun(), wait: cfg.Wait, parallel: cfg.Parallel,
		trust: cfg.TrustChecksums, dryRun: cfg.DryRun, report: newReport(cfg)}
	im.fit = fitting{site: b.Code, instrument: cfg.Instrument, run: im.run, template: template, settle: cfg.Settle}
	defer im.report.shown.Stop()
	t, err := parseTarget(cfg.Tree, b.Bucket(), cfg.InPlace)
	if err != nil {
		return err
	}
	if im.store, err = b.Store(ctx); err != nil {
		return err
	}
	im.source = t.source(im)
	im.folders.IsObject = im.isObject
	root := ""
	if t.dir != "" {
		if root, err = filepath.Abs(t.dir); err != nil {
			return err
		}
		root = filepath.ToSlash(root)
	}
	if err := im.readChecksums(cfg.Checksums, root); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var counting sync.WaitGroup
	defer counting.Wait()
	defer cancel()
	if !cfg.Quiet {
		counting.Go(func() { im.count(ctx) })
	}
	if cfg.DryRun {
		err = im.dry(ctx)
	} else {
		err = im.runLeased(ctx, b)
	}
	if err != nil {
		return err
	}
	if err := im.reportMissing(cfg.Checksums, root); err != nil {
		return err
	}
	return im.report.end(im.run)
}

func (im *importer) readChecksums(file, root string) error {
	if file == "" {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("--checksums: %w", err)
	}
	defer f.Close()
	if im.checksums, err = readChecksums(f, root); err != nil {
		return fmt.Errorf("--checksums %s: %w", file, err)
	}
	return nil
}

// reportMissing reports what the checksum file names and the tree does not have.
func (im *importer) reportMissing(file, root string) error {
	if im.checksums == nil {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("--checksums: %w", err)
	}
	defer f.Close()
	for line, err := range im.checksums.missing(f, root) {
		if err != nil {
			return fmt.Errorf("--checksums %s: %w", file, err)
		}
		im.report.unplaced(line.name, &unplaced{Missing, fmt.Errorf("line %d of the checksum file names it, and it is not in the tree", line.number)})
	}
	return nil
}

// count finds out how many things the tree has, beside the import. Without it the duration of the import is unknown.
func (im *importer) count(ctx context.Context) {
	total := int64(0)
	for _, err := range im.source.each(ctx) {
		if err != nil && !errors.As(err, new(*unplaced)) {
			return
		}
		total++
	}
	im.report.mu.Lock()
	defer im.report.mu.Unlock()
	im.report.total = total
}

// dry walks the tree and stores nothing.
func (im *importer) dry(ctx context.Context) (err error) {
	if im.known, err = readKnown(ctx, im.store, im.site, im.instrument); err != nil {
		return err
	}
	return im.walk(ctx, func(p *placement) error {
		im.report.count(func(s *Summary) {
			s.Registered++
			s.Bytes += uint64(p.size)
			if len(p.before) > 0 {
				s.Versions++
			}
		})
		return nil
	})
}

// runLeased imports under the lease.
func (im *importer) runLeased(ctx context.Context, b *backend.Backend) error {
	var err error
	if im.js, err = b.JetStream(ctx); err != nil {
		return err
	}
	entry, err := instrumentOf(ctx, im.js, im.site, im.instrument)
	if err != nil {
		return err
	}
	im.fit.mediaType, im.fit.lateAfter = entry.MediaType, entry.LateAfter()
	if im.lease, err = im.acquire(ctx); err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		if err := im.lease.Release(end); err != nil {
			im.report.shown.Say("cannot release the lease; it expires by itself: %v", err)
		}
	}()
	if err := im.awaitListed(ctx); err != nil {
		return err
	}
	if im.known, err = readKnown(ctx, im.store, im.site, im.instrument); err != nil {
		return err
	}
	if im.names, err = im.js.KeyValue(ctx, wire.NamesBucket(im.site)); err != nil {
		return fmt.Errorf("names of Site %s: %w", im.site, err)
	}
	columns, err := im.js.KeyValue(ctx, wire.LedgerBucket(im.site))
	if err != nil {
		return fmt.Errorf("ledger of Site %s: %w", im.site, err)
	}
	if im.ledger, err = openLedger(ctx, columns, im.instrument, im.known.imported); err != nil {
		return err
	}
	return im.place(ctx)
}

// place imports the tree, saves the ledger meanwhile and finishes what is on its
// way, also after an error.
func (im *importer) place(ctx context.Context) error {
	work, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var err error
	if im.announcer, err = newAnnouncer(work, im.js, im.site, im.report, im.announced, fail); err != nil {
		return err
	}
	saved := make(chan struct{})
	go func() {
		defer close(saved)
		im.watch(work, fail)
	}()
	err = im.walkInParallel(work, im.importPlacement)
	if cause := context.Cause(work); cause != nil {
		err = cause
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	err = errors.Join(err, im.announcer.close(end))
	if cause := context.Cause(work); err == nil {
		err = cause // of the last notices
	}
	fail(nil)
	<-saved
	if lost := im.lease.Check(); lost != nil {
		return errors.Join(err, lost)
	}
	return errors.Join(err, im.ledger.save(end))
}

// watch saves the ledger until ctx ends.
func (im *importer) watch(ctx context.Context, fail context.CancelCauseFunc) {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-im.lease.Lost():
			fail(stream.ErrLeaseLost)
			return
		case <-tick.C:
			if err := im.ledger.save(ctx); err != nil && ctx.Err() == nil {
				fail(err)
				return
			}
		}
	}
}

// walkInParallel is walk whose work is done by several.
func (im *importer) walkInParallel(ctx context.Context, work func(context.Context, *placement) error) error {
	group, ctx := errgroup.WithContext(ctx)
	todo := make(chan *placement)
	for range im.parallel {
		group.Go(func() error {
			for p := range todo {
				if err := work(ctx, p); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		defer close(todo)
		return im.walk(ctx, func(p *placement) error {
			select {
			case todo <- p:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	return group.Wait()
}

// walk calls f for each thing of the tree that fits and that the archive does
// not list unchanged.
func (im *importer) walk(ctx context.Context, f func(*placement) error) error {
	for i, err := range im.source.each(ctx) {
		var why *unplaced
		if err != nil && !errors.As(err, &why) {
			return err
		}
		im.report.count(func(s *Summary) { s.Seen++ })
		p := &placement{item: i, trust: im.trust}
		if digest, found := im.checksums.lookUp(i.name); found {
			p.listed = &digest
		}
		if why == nil {
			err := im.fits(p)
			if err != nil && !errors.As(err, &why) {
				return err
			}
		}
		switch {
		case why != nil:
			im.report.unplaced(i.name, why)
		case unchanged(p.before, im.source.key(i.name), i.size, i.modified):
			im.report.count(func(s *Summary) { s.Unchanged++ })
		default:
			if err := f(p); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// fits completes what is known of a thing before its bytes are read.
func (im *importer) fits(p *placement) (err error) {
	key := im.source.key(p.name)
	p.notice.Site, p.notice.Instrument = im.site, im.instrument
	p.notice.Record, p.inName, err = im.fit.record(p.item, key, time.Now())
	p.before = im.known.of(key)
	if err == nil && len(p.before) == 0 && wire.IsOurs(key) {
		err = im.fitsBeside(p)
	}
	return err
}

// fitsBeside returns an error if the name of a thing is a folder in the archive, or one of its folders is the name of an object.
func (im *importer) fitsBeside(p *placement) error {
	if im.known.isFolder(p.notice.Key) {
		return conflict(&nameclaims.FolderError{Instrument: im.instrument, Name: p.name, Both: p.name})
	}
	for _, folder := range wire.NameFolders(p.name) {
		if len(im.known.of(im.source.key(folder))) > 0 {
			return conflict(&nameclaims.FolderError{Instrument: im.instrument, Name: p.name, Both: folder})
		}
	}
	return nil
}

func conflict(err error) error {
	return &unplaced{NameConflict, fmt.Errorf("%w: give the file another name, or import it for another Instrument", err)}
}

// isObject says whether an object has a name that has no claim.
func (im *importer) isObject(_ context.Context, _, name string) (bool, error) {
	return len(im.known.of(im.source.key(name))) > 0, nil
}

// claim claims the folders of a thing's name, and sees that the name itself is no folder.
func (im *importer) claim(ctx context.Context, p *placement) error {
	if !wire.IsOurs(p.notice.Key) || len(p.before) > 0 {
		return nil
	}
	var both *nameclaims.FolderError
	if err := im.folders.Claim(ctx, im.names, im.instrument, p.name, false); errors.As(err, &both) {
		return conflict(err)
	} else if err != nil {
		return err
	}
	claim, _, err := stream.Record[wire.NameClaim](ctx, im.names, wire.NameKey(im.instrument, p.name))
	if err == nil && claim.Folder && len(claim.Versions) == 0 {
		return conflict(&nameclaims.FolderError{Instrument: im.instrument, Name: p.name, Both: p.name})
	}
	return err
}

// importPlacement places and announces a thing.
func (im *importer) importPlacement(ctx context.Context, p *placement) error {
	err := im.claim(ctx, p)
	if err == nil {
		err = im.source.place(ctx, p)
	}
	im.report.count(func(s *Summary) { s.BytesRead += uint64(p.read) })
	var why *unplaced
	switch {
	case errors.As(err, &why):
		im.report.unplaced(p.name, why)
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", p.name, err)
	case p.known:
		im.report.count(func(s *Summary) { s.Touched++ })
		return nil
	}
	if err := im.lease.Check(); err != nil {
		return err
	}
	if p.version {
		im.report.count(func(s *Summary) { s.Versions++ })
		im.report.version(p)
	}
	return im.announcer.announce(ctx, p.notice)
}

// announced counts what the stream took.
func (im *importer) announced(r wire.Record) {
	im.ledger.add(r)
	im.report.count(func(s *Summary) { s.Registered++; s.Bytes += uint64(r.Size) })
}
