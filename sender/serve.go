// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stamp"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/sender/queue"
)

// QueueConfig says how objects wait for their receipt on a disk.
type QueueConfig struct {
	// Dir of the queue; empty for a run without one.
	Dir string
	// Watch are folders whose new files are sent, until the run is ended. Without
	// one the run ends when the queue is empty.
	Watch []string
	// Move takes files away from watched folders; else they stay there.
	Move bool
	// Ignore are patterns of names that are not sent, beside ignored.
	Ignore []string
	// Rewritten are patterns of names of files that the instrument rewrites: each version is an object with a name of its own.
	Rewritten []string
	// Settle is how long a file must not change to be whole, ScanInterval how often
	// folders are looked at.
	Settle, ScanInterval time.Duration
	// NewestFirst sends the newest first, and gives BackfillShare of the bytes, from
	// 0 to 1, to the oldest.
	NewestFirst   bool
	BackfillShare float64
	// MaxRate in bytes a second and DailyBudget in bytes a UTC day; 0 is no limit.
	MaxRate, DailyBudget int64
	// Heartbeat is how often the sender reports itself (wire.FramingLengthPrefixed);
	// 0 is never.
	Heartbeat time.Duration

	// SampleCommand, if set, is what the shell runs when gateways ask for another rate of
	// observations.
	SampleCommand string
	// LinkProbe, if set, is the host:port of a gateway to which the link is measured, by a packet
	// each LinkProbeInterval.
	LinkProbe         string
	LinkProbeInterval time.Duration
}

// keeper sends what is in a queue, and keeps it until then.
type keeper struct {
	cfg   Config
	queue *queue.Queue
	log   *slog.Logger

	delivery  *delivery
	pipes     *pipes // nil for wire.FramingUntilClose
	web       *web   // nil but for HTTP
	clock     clock
	sampler   *sampler       // nil where no command is obeyed
	linkProbe *stamp.Session // nil where it is not measured
	report    *report
	// reconnected signals that a connection was made or has ended, obeyed that the state of
	// commands changed.
	reconnected, obeyed chan struct{}
	troubles            troubles

	// away are watched folders that were not there at the start, and not before.
	away []string

	mu       sync.Mutex
	schedule *schedule
	// changed is closed and replaced when there may be something else to send.
	changed chan struct{}
	// ending: nothing is added any more.
	ending bool
	// dialed is the longest that a server took to accept, of late.
	dialed         time.Duration
	sent, setAside int64
	spentSaid      bool
}

// serve runs with a queue. When ctx ends, what has no receipt stays in the queue.
func serve(ctx context.Context, cfg Config) (err error) {
	log := slog.New(slog.NewTextHandler(cfg.Messages, &slog.HandlerOptions{Level: levelOf(cfg.Quiet)}))
	if err := checkFolders(cfg.Queue.Watch, cfg.Queue.Dir); err != nil {
		return err
	}
	away, err := cfg.confirmWatched()
	if err != nil {
		return err
	}
	q, err := queue.Open(queue.Config{Dir: cfg.Queue.Dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	there := slices.DeleteFunc(slices.Clone(cfg.Queue.Watch), func(dir string) bool { return slices.Contains(away, dir) })
	if err := q.NoteWatched(there); err != nil { // a full disk, which sending makes space on
		log.Warn("cannot save the watched folders in the queue: the next start asks about mixed ones again", "error", err)
	}
	list, err := openReport(cfg.Report)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, list.close()) }()
	s := newKeeper(ctx, cfg, q, list, log)
	s.away = away
	found := q.Report()
	log.Info("queue opened", "queue", cfg.Queue.Dir, "objects", found.Owed, "bytes", found.OwedBytes, "adopted", found.Adopted, "badRecords", found.BadRecords)
	return s.run(ctx)
}

func levelOf(quiet bool) slog.Level {
	if quiet {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

func newKeeper(ctx context.Context, cfg Config, q *queue.Queue, list *report, log *slog.Logger) *keeper {
	s := &keeper{
		cfg: cfg, queue: q, log: log, report: list, changed: make(chan struct{}),
		schedule:    newSchedule(cfg.Queue.NewestFirst, cfg.Queue.BackfillShare, cfg.Queue.DailyBudget),
		troubles:    troubles{show: func(text string) { log.Warn(text) }},
		reconnected: make(chan struct{}, 1), obeyed: make(chan struct{}, 1),
	}
	day, spent := q.Spent()
	s.schedule.budget.day, s.schedule.budget.spent = wire.Day(day), spent
	s.schedule.add(q.Waiting()...)
	to := &sender{dialer: cfg.dialer(), tls: cfg.TLS, receiptTimeout: cfg.ReceiptTimeout, sent: s.spend, lost: func(int64) {}, connected: s.connected}
	if rate := cfg.Queue.MaxRate; rate > 0 {
		to.pace, to.writeBuffer = newPacer(ctx, rate).take, writeBuffer(rate)
	}
	// Each address is tried once; what comes then is the schedule's to say.
	s.delivery = newDelivery(to.attempt, cfg.Addresses, cfg.HedgeAfter)
	s.delivery.again = s.noteRetry
	switch {
	case cfg.HTTP != nil:
		s.web = newWeb(*cfg.HTTP, to)
		s.delivery.attempt = s.web.attempt
	case cfg.Framing == wire.FramingLengthPrefixed:
		s.pipes = newPipes(ctx, to)
		s.delivery.attempt = s.pipes.attempt
	}
	if cfg.Queue.SampleCommand != "" && s.pipes != nil {
		s.sampler = newSampler(sampleCommand(cfg.Queue.SampleCommand, log), func() { signal(s.obeyed) }, log)
		s.pipes.commanded, s.pipes.changed = s.sampler.command, func() { signal(s.reconnected) }
	}
	if cfg.Queue.LinkProbe != "" {
		s.linkProbe = s.newLinkProbe()
	}
	return s
}

// run returns nil when the queue is empty or, with watched folders, when ctx ends.
func (s *keeper) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if s.pipes != nil {
		s.pipes.run = ctx
	}
	var helpers, workers sync.WaitGroup
	helpers.Go(func() {
		if err := s.fill(ctx); err != nil {
			cancel(err)
		}
	})
	if s.pipes != nil && s.cfg.Queue.Heartbeat > 0 {
		helpers.Go(func() { s.beats(ctx) })
	}
	if s.sampler != nil {
		helpers.Go(func() { s.sampler.obey(ctx) })
	}
	if s.linkProbe != nil {
		helpers.Go(func() { s.linkProbe.Run(ctx) })
	}
	for range max(1, s.cfg.Parallel) {
		workers.Go(func() {
			for {
				e, ok := s.next(ctx)
				if !ok {
					return
				}
				s.send(ctx, e, cancel)
			}
		})
	}
	workers.Wait()
	ended := context.Cause(ctx)
	cancel(nil)
	helpers.Wait()
	if s.pipes != nil {
		s.pipes.close()
	}
	if s.web != nil {
		s.web.close()
	}
	return s.conclude(ended)
}

// conclude logs what is left in the queue, and returns the run's error.
func (s *keeper) conclude(ended error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects, bytes, _ := s.schedule.owed()
	s.log.Info("stopped", "sent", s.sent, "setAside", s.setAside, "objects", objects, "bytes", bytes)
	switch {
	case ended != nil && !errors.Is(ended, context.Canceled):
		return ended
	case ended != nil && len(s.cfg.Queue.Watch) == 0:
		return fmt.Errorf("interrupted: %d objects have a receipt, %d stay in the queue: %w", s.sent, objects, context.Canceled)
	case len(s.cfg.Queue.Watch) == 0 && s.setAside+objects > 0:
		return fmt.Errorf("%d objects have a receipt, %d were set aside in %s, %d stay in its objects: see above", s.sent, s.setAside, s.cfg.Queue.Dir, objects)
	}
	return nil
}

// fill puts what there is to send into the queue.
func (s *keeper) fill(ctx context.Context) error {
	if len(s.cfg.Queue.Watch) > 0 {
		s.watch(ctx)
		return nil
	}
	err := s.queueInput(ctx)
	s.mu.Lock()
	s.ending = true
	s.wake()
	s.mu.Unlock()
	return err
}

// Every rememberEvery what is known of files that are gone is forgotten. A scan
// is followed by a pause scanRest times as long, however many files there are.
// One that failed, on a full disk say, by scanMend of the usual pauses.
const (
	rememberEvery = time.Hour
	scanRest      = 9
	scanMend      = 20
)

func (s *keeper) watch(ctx context.Context) {
	w := &watcher{
		dirs: s.cfg.Queue.Watch, ignore: s.cfg.ignored(), settle: s.cfg.Queue.Settle, move: s.cfg.Queue.Move,
		queue: s.queue, queueName: s.cfg.HTTP.queueName, rewrites: s.cfg.Queue.rewrites, took: s.add, now: time.Now, log: s.log,
		away: map[string]error{}, confirm: s.confirm,
	}
	for _, dir := range s.away {
		w.away[dir] = nil
	}
	var remembered time.Time
	for ctx.Err() == nil {
		begin := time.Now()
		remember := begin.Sub(remembered) > rememberEvery
		pause := s.cfg.Queue.ScanInterval
		if !w.scan(ctx, remember) {
			pause *= scanMend
		} else if remember {
			remembered = begin
		}
		retry.Sleep(ctx, max(pause, scanRest*time.Since(begin)))
	}
}

// confirm decides about a folder that came after the start; no person can be asked then.
func (s *keeper) confirm(dir string) error {
	cfg := s.cfg
	cfg.Ask = nil
	if err := cfg.confirm(cfg.watched(dir)); err != nil {
		return err
	}
	return s.queue.NoteWatched([]string{dir})
}

// wake has all waiting goroutines look again. The caller holds mu.
func (s *keeper) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *keeper) add(entries []queue.Entry) {
	s.sampler.observed(entries)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schedule.add(entries...)
	s.wake()
}

// spend counts bytes that the system took.
func (s *keeper) spend(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schedule.budget.spent += n
}

// noteSpent writes down what counts for the day. The caller holds mu.
func (s *keeper) noteSpent() {
	b := &s.schedule.budget
	if b.limit == 0 {
		return
	}
	if err := s.queue.NoteSpent(string(b.day), b.counts()); err != nil {
		s.troubles.say("spent", fmt.Sprintf("cannot save how much of the daily budget is spent: %v", err))
	}
}

// connected notes how long a server took to accept. The longest counts, and is
// forgotten slowly.
func (s *keeper) connected(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialed = max(d, s.dialed-s.dialed/8)
}

// next waits for something to send. It returns false where the run ends.
func (s *keeper) next(ctx context.Context) (queue.Entry, bool) {
	for {
		s.mu.Lock()
		now := time.Now()
		e, wait, ok := s.schedule.pick(now)
		if ok {
			s.spentSaid = false
			s.noteSpent()
		} else if wait > maxPause && !s.spentSaid {
			s.spentSaid = true
			objects, _, _ := s.schedule.owed()
			s.log.Warn("the day's budget is spent", "bytes", s.schedule.budget.spent, "objects", objects, "goesOnIn", wait.Round(time.Second))
		}
		changed := s.changed
		over := s.ending && len(s.schedule.waiting)+len(s.schedule.inFlight) == 0
		s.mu.Unlock()
		if over || ctx.Err() != nil {
			return queue.Entry{}, false
		}
		if ok {
			return e, true
		}
		var again <-chan time.Time
		if wait > 0 {
			again = time.After(min(wait, time.Minute)) // clocks are set
		}
		select {
		case <-ctx.Done():
			return queue.Entry{}, false
		case <-changed:
		case <-again:
		}
	}
}
