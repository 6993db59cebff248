// SPDX-License-Identifier: Apache-2.0

// Package tree pulls folders of files, of a web server or by rsync, into Instruments of the Site. There is no manifest that
// tells what changed: a run looks at each folder, and fetches the files whose size or time is another than when they were
// fetched last, or asks whether they changed. A pattern says which Instrument a file belongs to.
package tree

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/gateway"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/summary"
)

// Source is another side's tree of files. Its errors are push.Problem where they are about all of it.
type Source interface {
	// Walk calls visit for each folder. If some cannot be listed, it continues with the others, and ends with ErrUnlisted; in a
	// push.Problem if there is a reason of its own for that.
	Walk(ctx context.Context, visit func(Folder) error) error
	// Fetch calls take for each file that came, or is as it was seen, or cannot be had, from any number of goroutines. The Got that
	// take is given may be used until take returns; its errors end Fetch.
	Fetch(ctx context.Context, files []Wanted, take func(i int, got Got) error) error
}

// ErrUnlisted: some of a tree could not be listed. All else was visited.
var ErrUnlisted = errors.New("not all could be listed")

// Folder is one of a tree, with the files in it.
type Folder struct {
	// Path below the one that is pulled; empty for that itself.
	Path  string
	Files []plan.File
	// BadNames are paths of files and folders, here or elsewhere in the tree, that no object can have as its name: they cannot come.
	BadNames []string
}

// Wanted is a file that may have changed since it was seen.
type Wanted struct {
	plan.File
	Seen Seen
	// Most is how many bytes it may have: of one with more not much more is fetched, and its error is ErrTooLarge. 0: any.
	Most int64
	// Moving counts bytes as they come, if the source sees them come.
	Moving *push.Moving
}

// ErrTooLarge: a file has more bytes than an object of its Instrument may have.
var ErrTooLarge = errors.New("it is larger than spec.limits.maxObjectSize of its Instrument")

// Seen is what a file was when it was fetched.
type Seen struct {
	// Mark as in plan.File.
	Mark string `json:"mark,omitempty"`
	// Instrument to which it was brought.
	Instrument string `json:"instrument,omitempty"`
	// ETag and Modified are the validators of a web server (RFC 9110, 8.8).
	ETag     string `json:"etag,omitempty"`
	Modified string `json:"modified,omitempty"`
}

// Got is what became of a file.
type Got struct {
	// Err says why it cannot be had.
	Err error
	// Unchanged: it is what was seen.
	Unchanged bool
	Seen      Seen
	// Size in bytes. Open opens them, any number of times.
	Size      int64
	MediaType string
	Open      func() (io.ReadCloser, error)
}

// empty says whether a file came that has no bytes.
func (g Got) empty() bool { return g.Err == nil && !g.Unchanged && g.Size == 0 }

// Config says what is pulled.
type Config struct {
	Site  string
	Entry wire.MirrorEntry
	// Kind of run, as in gateway.Config.
	Kind      string
	Source    Source
	JetStream jetstream.JetStream
	// MaxObjectSize is how many bytes an object of an Instrument may have; nil, or 0: any.
	MaxObjectSize func(instrument string) int64
	// HasListeners says whether an Instrument has listeners: nothing is pulled into one that has. Nil: none has.
	HasListeners func(instrument string) bool
	// Pause returns when objects may be moved. Errors: ctx's.
	Pause func(ctx context.Context) error
	// VerifyOnly compares and moves nothing; Force fetches all, whatever was fetched before.
	VerifyOnly, Force bool
	Progress          *push.Progress
	Logger            *slog.Logger
}

const (
	// filesAtOnce of a folder are fetched before it is noted that they are here.
	filesAtOnce = 1000
	// foldersAtOnce are worked on while the next are looked at.
	foldersAtOnce = 2
)

// Run makes one run. Errors: push.ErrOwed, push.Problem, of NATS.
func Run(ctx context.Context, cfg Config) error {
	if err := mayWrite(cfg); err != nil {
		return err
	}
	r := &run{Config: cfg, log: summary.New(cfg.Logger)}
	defer r.log.Flush()
	var err error
	if r.state, err = openState(ctx, cfg.JetStream, cfg.Site, cfg.Entry.Partner); err != nil {
		return err
	}
	if !cfg.VerifyOnly {
		r.gateways, err = gateway.Open(ctx, gateway.Config{Site: cfg.Site, Partner: cfg.Entry.Partner, Kind: cfg.Kind, JetStream: cfg.JetStream,
			Connections: max(1, cfg.Entry.Limits.Connections), Logger: cfg.Logger})
		if err != nil {
			return err
		}
		defer r.gateways.Close()
	}
	if err := r.all(ctx); err != nil {
		return err
	}
	return r.leaves()
}

// run is one.
type run struct {
	Config
	state    *state
	gateways *gateway.Client
	log      *summary.Log
	// owed are files that did not come. One goroutine counts.
	owed int
	// firstOwed names the first file that is owed, and firstErr says why it did not come; nil: no attempt was made.
	firstOwed string
	firstErr  error
}

// all walks the tree, and works on folders meanwhile.
func (r *run) all(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	folders := make(chan Folder, foldersAtOnce)
	var unlisted error
	group.Go(func() error {
		defer close(folders)
		err := r.Source.Walk(ctx, func(f Folder) error {
			r.Progress.Answer()
			select {
			case folders <- f:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if errors.Is(err, ErrUnlisted) {
			unlisted = err
			return nil // what is listed comes
		}
		return err
	})
	group.Go(func() error {
		for f := range folders {
			if err := r.folder(ctx, f); err != nil {
				return err
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil || unlisted == nil {
		return err
	}
	r.owed++ // at least
	r.Logger.Error("some of the other side's files cannot be listed, and are not mirrored", "error", unlisted)
	if problem := (*push.Problem)(nil); errors.As(unlisted, &problem) {
		return unlisted
	}
	return nil
}

// folder brings what changed in one.
func (r *run) folder(ctx context.Context, f Folder) error {
	if err := r.Pause(ctx); err != nil {
		return err
	}
	known, err := r.state.folder(ctx, f.Path)
	if err != nil {
		return err
	}
	before := map[string]plan.Fetched{}
	if !r.Force {
		for path, s := range known.seen {
			before[path] = plan.Fetched{Mark: s.Mark, Instrument: s.Instrument}
		}
	}
	todo := plan.Tree(f.Files, before, r.Entry.Paths)
	r.Progress.Compare(todo.Same)
	r.quarantine(f, todo.Quarantined)
	r.passBadNames(f.BadNames)
	r.passEmpty(f, &todo)
	for _, i := range todo.Fetch {
		r.Progress.Owe(max(0, f.Files[i].Size))
	}
	if r.VerifyOnly {
		for _, i := range todo.Fetch {
			r.owe(f.Files[i].Path, nil)
		}
		return nil
	}
	for begin := 0; begin < len(todo.Fetch); begin += filesAtOnce {
		end := min(begin+filesAtOnce, len(todo.Fetch))
		err := r.files(ctx, f, todo.Fetch[begin:end], todo.Instruments[begin:end], known)
		if err := errors.Join(err, known.save(context.WithoutCancel(ctx))); err != nil {
			return err
		}
	}
	return nil
}

// quarantine counts files that belong to no Instrument.
func (r *run) quarantine(f Folder, files []int) {
	r.Progress.Quarantine(len(files))
	for _, i := range files {
		r.log.Add(slog.LevelWarn, "files that no pattern of spec.paths fits stay at the other side until one does", "path", f.Files[i].Path)
	}
}

// passBadNames counts files whose names no object can have.
func (r *run) passBadNames(names []string) {
	r.Progress.PassBadNames(len(names))
	for _, name := range names {
		r.log.Add(slog.LevelWarn, "skipping files and folders whose names no object can have", "error", wire.SaidText(wire.CheckSentName(name).Error()))
	}
}

// passEmpty takes files that are known to be empty out of what is to be fetched.
func (r *run) passEmpty(f Folder, todo *plan.TreeFolder) {
	fetch, instruments := todo.Fetch[:0], todo.Instruments[:0]
	for n, i := range todo.Fetch {
		if f.Files[i].Size == 0 {
			r.pass(f.Files[i].Path)
			continue
		}
		fetch, instruments = append(fetch, i), append(instruments, todo.Instruments[n])
	}
	todo.Fetch, todo.Instruments = fetch, instruments
}

// pass counts a file that is empty.
func (r *run) pass(path string) {
	r.log.Add(slog.LevelWarn, "skipping empty files of the other side: an object has at least one byte", "path", path)
	r.Progress.PassEmpty()
}

// ended is how a file ended.
type ended struct {
	path   string
	moving *push.Moving
	seen   Seen
	empty  bool
	err    error
}

// files fetches some, and notes those that are here.
func (r *run) files(ctx context.Context, f Folder, which []int, instruments []string, known *fetched) error {
	wanted := make([]Wanted, len(which))
	for n, i := range which {
		wanted[n] = Wanted{File: f.Files[i], Moving: r.Progress.Begin(max(0, f.Files[i].Size))}
		if r.MaxObjectSize != nil {
			wanted[n].Most = r.MaxObjectSize(instruments[n])
		}
		if was := known.seen[f.Files[i].Path]; !r.Force && was.Instrument == instruments[n] {
			wanted[n].Seen = was
		}
	}
	results := make(chan ended)
	done := make(chan error, 1)
	go func() {
		defer close(results)
		done <- r.Source.Fetch(ctx, wanted, func(n int, got Got) error {
			err := r.bring(ctx, instruments[n], wanted[n], got)
			if err != nil && got.Err == nil && !r.gateways.Final(err) {
				return err
			}
			got.Seen.Instrument = instruments[n]
			if got.Err == nil {
				wanted[n].Moving.Resize(got.Size)
			}
			results <- ended{wanted[n].Path, wanted[n].Moving, got.Seen, got.empty(), err}
			return nil
		})
	}()
	came := 0
	for e := range results {
		came++
		if e.empty {
			e.moving.Forget()
			r.pass(e.path) // and not noted: it may be written within the second or minute that tells whether it changed
			continue
		}
		e.moving.End(e.err == nil)
		if e.err != nil {
			r.owe(e.path, e.err)
			r.log.Add(slog.LevelError, "files are not mirrored", "path", e.path, "error", e.err)
			continue
		}
		known.set(e.path, e.seen)
	}
	if err := <-done; err != nil {
		return err
	}
	r.owed += len(wanted) - came // the source did not say what became of them
	return nil
}

// bring sends a file that changed to a gateway.
func (r *run) bring(ctx context.Context, instrument string, w Wanted, got Got) error {
	if got.Err != nil || got.Unchanged || got.empty() {
		return got.Err
	}
	return r.gateways.Put(ctx, gateway.Object{Instrument: instrument, Open: got.Open,
		Record: wire.MirroredObject{Path: w.Path, Size: got.Size, MediaType: got.MediaType}})
}
