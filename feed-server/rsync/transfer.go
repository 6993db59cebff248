// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
)

// lastPhase is the number of the last phase: files, files that arrived damaged again, and what the
// client puts in place at the end.
const lastPhase = 2

// answer is a request that is to be answered, and the file that it asks for; nil: none.
type answer struct {
	*request
	*fetched
}

// transfer answers requests in their order, and sends lists in between. Files are fetched while
// others are sent, also files that were asked for at once.
type transfer struct {
	*session
	requests *requests
	tokens   tokens
	// queue are answers whose files were looked for. The files of the first loaded answers are
	// being fetched, or need not be; queued is how many bytes these have.
	queue  []*answer
	loaded int
	queued int64
	phase  int
	// finished: all was answered.
	finished bool
}

// transfer answers a client until it has all. Errors: the connection's, the catalog's,
// ctx's, errMalformed.
func (s *session) transfer(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tokens, err := newTokens(s.out, s.agreed.compress)
	if err != nil {
		return err
	}
	defer tokens.close()
	t := &transfer{session: s, requests: newRequests(s.in, s.options), tokens: tokens}
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		t.requests.run(ctx)
	}()
	defer func() { // the connection is read by one at a time
		cancel()
		s.interrupt()
		<-reading
	}()
	for !t.finished {
		if err := t.step(ctx); err != nil {
			return err
		}
	}
	return t.goodbye(ctx)
}

// step sends what can be sent, and waits if there is nothing.
func (t *transfer) step(ctx context.Context) error {
	if err := t.sendMore(ctx, ahead); err != nil {
		return err
	}
	if err := t.take(ctx); err != nil {
		return err
	}
	t.load(ctx)
	if len(t.queue) == 0 {
		if !t.lists.ended && t.lists.listed() < idleAhead { // there is time for it
			return t.sendMore(ctx, t.lists.listed()+1)
		}
		return t.await(ctx)
	}
	if head := t.queue[0]; head.fetched != nil && !head.ready() {
		if err := t.out.flush(); err != nil {
			return err
		}
	}
	head := t.pop()
	defer t.requests.done(head.request)
	return t.answer(ctx, head)
}

// await waits for a request, while nothing is to be sent but that the connection is alive.
func (t *transfer) await(ctx context.Context) error {
	if err := t.out.flush(); err != nil {
		return err
	}
	t.view.forget()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for since := time.Now(); ; since = time.Now() {
		select {
		case is, open := <-t.requests.all:
			if !open {
				return t.requests.err
			}
			t.requests.unread = is
			return t.countWait(since, errAsks)
		case <-look.C:
			if err := t.countWait(since, errAsks); err != nil {
				return err
			}
			if t.keepAlive(); t.out.err != nil {
				return t.out.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take takes the requests that are there already, and finds what they ask for: the files of
// one day together, since a day may have to be read for it.
func (t *transfer) take(ctx context.Context) error {
	if len(t.queue)-t.loaded > batchFiles/2 {
		return nil
	}
	var files []*fetched
	for len(t.queue) < batchFiles {
		is := t.requests.poll()
		if is == nil {
			break
		}
		a := &answer{request: is}
		t.queue = append(t.queue, a)
		if is.index < 0 || !is.transfers() {
			continue
		}
		var err error
		if a.fetched, err = t.fileOf(is.index); err != nil {
			return err
		}
		files = append(files, a.fetched)
	}
	return t.view.findAll(ctx, files)
}

// load has files fetched, once there is space for a batch.
func (t *transfer) load(ctx context.Context) {
	if t.queued > batchBytes/2 {
		return
	}
	var files []*fetched
	for ; t.loaded < len(t.queue) && t.queued < batchBytes; t.loaded++ {
		f := t.queue[t.loaded].fetched
		if f == nil || f.record == nil || t.options.dryRun {
			continue
		}
		files = append(files, f)
		if !streams(f.record) {
			t.queued += f.record.Size
		}
	}
	fetch(ctx, t.cfg.Store, files)
}

// fileOf returns the file of an index.
func (t *transfer) fileOf(index int32) (*fetched, error) {
	list, at, ok := t.lists.find(index)
	if !ok || at < 0 {
		return nil, malformed("index %d is in no list", index)
	}
	from, name, isFile := list.file(at)
	if !isFile {
		return nil, malformed("a directory is asked for, with index %d", index)
	}
	return &fetched{origin: from, path: join(from.dir, name)}, nil
}

// pop takes the first of the queue.
func (t *transfer) pop() *answer {
	head := t.queue[0]
	t.queue = t.queue[1:]
	t.loaded = max(0, t.loaded-1)
	if head.fetched != nil && head.done != nil {
		t.queued -= head.record.Size
	}
	return head
}

// answer answers one request.
func (t *transfer) answer(ctx context.Context, a *answer) error {
	switch {
	case a.index == ndxDone:
		return t.done()
	case a.index == ndxDeleted:
		t.out.index(ndxDeleted)
		for _, v := range a.deleted {
			t.out.varint(v)
		}
		return t.out.err
	case !a.transfers():
		if _, _, ok := t.lists.find(a.index); !ok {
			return malformed("index %d is in no list", a.index)
		}
		t.echo(a.request)
		return t.out.err
	case t.phase == lastPhase:
		return malformed("a file is asked for after the last one")
	case a.record == nil:
		return t.refuseFile(a, "it is not published any more")
	case t.options.dryRun:
		t.echo(a.request)
		return t.out.err
	default:
		return t.send(ctx, a)
	}
}

// echo repeats what was asked.
func (t *transfer) echo(asked *request) {
	t.out.index(asked.index)
	t.out.short(asked.flags)
	if asked.flags&itemBasisFollows != 0 {
		t.out.byte(asked.basis)
	}
	if asked.hasOther {
		t.out.vtext(asked.other)
	}
}

// done is the end of a list's requests or, behind the last, of a phase.
func (t *transfer) done() error {
	l := &t.lists
	if t.agreed.recurse && len(l.open) > 0 {
		t.free(l.open[0])
		l.open, l.current = l.open[1:], max(0, l.current-1)
		if len(l.open) > 0 {
			t.out.index(ndxDone)
			return t.out.err
		}
	}
	if t.phase++; t.phase > lastPhase {
		t.finished = true
		return nil
	}
	t.out.index(ndxDone)
	return t.out.err
}

// refuseFile reports that a file of the list is not available.
func (t *transfer) refuseFile(a *answer, why string) error {
	t.fail(failedVanished, "%s/%s is not sent: %s", a.origin.instrument, a.path, why)
	t.out.messageInt(frameNoSend, a.index)
	return t.out.err
}

// isFileError reports whether a file of an error cannot be had, as distinct from all files.
func isFileError(err error) bool {
	return errors.Is(err, objectpath.ErrDamaged) || errors.Is(err, objectstore.ErrNotFound)
}

// send sends a file.
func (t *transfer) send(ctx context.Context, a *answer) error {
	if _, public := t.view.instrument(a.origin.instrument); !public {
		t.tellWithdrawn(a.origin.instrument)
		return t.refuseFile(a, errOver.Error())
	}
	var data []byte
	if a.done != nil {
		var err error
		if data, err = a.wait(ctx); err != nil {
			return t.unreadable(a, err)
		}
	}
	t.echo(a.request)
	for _, v := range []int32{a.blocks.count, a.blocks.size, a.blocks.sumLength, a.blocks.rest} {
		t.out.int(v)
	}
	d := t.newDelta(a)
	var err error
	if a.done != nil {
		err = d.whole(data)
	} else {
		err = d.stream(ctx, a.record)
	}
	if t.out.err != nil {
		return t.out.err
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	err = d.end(a, err)
	t.sent(a.origin.instrument, d.literals)
	return err
}

// unreadable is for a file that cannot be read before anything of it was sent.
func (t *transfer) unreadable(a *answer, err error) error {
	if !isFileError(err) {
		return fmt.Errorf("%s/%s: %w", a.origin.instrument, a.path, err)
	}
	t.damaged(a.origin.instrument, err)
	return t.refuseFile(a, "it is damaged in the store")
}

func (t *transfer) damaged(instrument string, err error) {
	t.metrics.damaged.Inc()
	t.tell(slog.LevelWarn, "a file is not sent: it is damaged in the store", "instrument", instrument, "error", err)
	var broken *objectpath.Broken
	if t.cfg.Damaged != nil && errors.As(err, &broken) {
		t.cfg.Damaged(instrument, broken.Record, errors.Is(err, objectstore.ErrNotFound))
	}
}

// goodbye ends a transfer in order: with what it came to.
func (t *transfer) goodbye(ctx context.Context) error {
	if t.failed != 0 {
		t.out.messageInt(frameIOError, t.failed)
	}
	t.out.index(ndxDone)
	for _, v := range []int64{t.in.read.Load(), t.out.written, t.totalSize, 1, 1} {
		t.out.varlong(v, 3)
	}
	if err := t.farewell(ctx); err != nil {
		return err
	}
	if t.protocol >= 31 {
		t.out.index(ndxDone)
		if err := t.farewell(ctx); err != nil {
			return err
		}
	}
	return t.out.flush()
}

// farewell waits until the client reports that it is done.
func (t *transfer) farewell(ctx context.Context) error {
	for {
		if len(t.queue) == 0 {
			if err := t.await(ctx); err != nil {
				return err
			}
			t.queue = append(t.queue, &answer{request: t.requests.poll()})
		}
		is := t.pop()
		switch is.index {
		case ndxDone:
			return nil
		case ndxDeleted:
			if err := t.answer(ctx, is); err != nil {
				return err
			}
		default:
			return malformed("index %d behind the end", is.index)
		}
	}
}
