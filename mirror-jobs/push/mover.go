// SPDX-License-Identifier: Apache-2.0

// Package push brings a Site's objects to a partner: it compares what the archive lists with
// what the partner has confirmed, has a mover bring the rest, and notes in the ledger what the
// partner has then.
package push

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// File is an object on its way to a partner.
type File struct {
	// Path at the partner: relative, without "." and "..".
	Path     string
	Size     int64
	Modified time.Time
	Digest   wire.Digest
	// MediaType may be empty.
	MediaType string
	// Open opens the bytes; nil if they are not needed: for a file that is to be verified by size and time. The last read returns an
	// error in place of io.EOF if they are not the bytes of Digest: such a file must not get its name at the partner.
	Open func(ctx context.Context) (io.ReadCloser, error)
	// Moving counts bytes as they go to the partner, if the mover sees them go; may be nil.
	Moving *Moving

	// Replaces: another file may lie at Path, also one with the same size and time.
	Replaces bool
	// Aside, where it is not empty, is added to the name of a file with other bytes that lies at Path: it may be the last copy of its object.
	Aside string

	// owner is the object that the path belongs to, whichever of its versions this is.
	owner string
	// candidates are its object and the versions of its name before it, the newest first, where the copy of one may be the last one and lie at the path.
	candidates []*wire.Record
	// clears: what was at the path before may have been retracted, and its tombstone goes.
	clears bool
	// outdated says whether the path belongs to a newer object by now, which the lists of days show a minute later; nil: the path belongs
	// to this object alone.
	outdated func(ctx context.Context) (bool, error)
}

// Mover gets files to one partner. It is used by one goroutine.
type Mover interface {
	// Most is how many files, and bytes of them, Deliver takes at once; one larger file
	// comes alone.
	Most() (files int, bytes int64)
	// Deliver brings files to the partner, each whole or not at all, and reports how each ended: nil means that the partner has
	// acknowledged it, ErrThere that the partner had it already, with its size and time, and if it Replaces another, with its bytes; with
	// anew no file ends so. ErrAside means that it is there, and that another file was set aside for it; with anew none is. Other errors
	// may be a Problem, of the file alone. The returned error concerns the partner as a whole (Problem): then no more is tried.
	Deliver(ctx context.Context, files []File, anew bool, ended func(i int, err error)) error
	// Verify calls differs for each file that the partner lacks, or has with another size or,
	// with digest, with other bytes. Without digest the time counts, too, where the partner keeps it, or what it noted of the
	// bytes. Errors: Problem.
	Verify(ctx context.Context, files []File, digest bool, differs func(i int, why string)) error
	// Has returns those of some paths under which the partner has a file. Errors: Problem.
	Has(ctx context.Context, paths []string) ([]string, error)
	// MayRemove returns why the partner lets none of some files be removed that it has; nil where it does not say that before it is asked to.
	MayRemove(ctx context.Context, paths []string) error
	// Remove removes files at the partner; those that it does not have count as removed.
	// Errors: Problem, KeptError.
	Remove(ctx context.Context, paths []string) error
}

// ErrThere: the partner has a file already.
var ErrThere = errors.New("it is there already")

// ErrAside: the partner has a file, and the one that had its Path has another name there.
var ErrAside = errors.New("the file that was in its place is set aside")

// answering notes when a mover's partner answered.
type answering struct {
	Mover
	progress *Progress
}

func (a answering) Deliver(ctx context.Context, files []File, anew bool, ended func(i int, err error)) error {
	return a.note(a.Mover.Deliver(ctx, files, anew, ended))
}

func (a answering) Verify(ctx context.Context, files []File, digest bool, differs func(i int, why string)) error {
	return a.note(a.Mover.Verify(ctx, files, digest, differs))
}

func (a answering) Has(ctx context.Context, paths []string) ([]string, error) {
	there, err := a.Mover.Has(ctx, paths)
	return there, a.note(err)
}

func (a answering) MayRemove(ctx context.Context, paths []string) error {
	return a.note(a.Mover.MayRemove(ctx, paths))
}

func (a answering) Remove(ctx context.Context, paths []string) error {
	return a.note(a.Mover.Remove(ctx, paths))
}

func (a answering) note(err error) error {
	var p *Problem
	if err == nil || errors.As(err, &p) && p.Answered {
		a.progress.Answer()
	}
	return err
}

// KeptError: the partner keeps some of the files that it was asked to remove. The run continues.
type KeptError struct{ Err error }

// Error implements error.
func (e *KeptError) Error() string { return e.Err.Error() }

// Unwrap returns what happened.
func (e *KeptError) Unwrap() error { return e.Err }

// Problem is why a partner does not take anything, with a reason as wire.MirrorReason….
type Problem struct {
	Reason string
	// Answered: it answered and let us in, and does not take this.
	Answered bool
	Err      error
}

// Error implements error.
func (p *Problem) Error() string { return p.Err.Error() }

// Unwrap returns what happened.
func (p *Problem) Unwrap() error { return p.Err }
