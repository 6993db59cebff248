// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/substorm/substorm/internal/progress"
	"github.com/substorm/substorm/internal/wire"
)

// Config is what to send, where to and how.
type Config struct {
	// Addresses are host:port, see ParseAddresses; with HTTP they are URLs.
	Addresses []string
	// Paths are files and folders; "-" is standard input.
	Paths []string
	Stdin io.Reader
	// Lines makes each line an object, or a datagram.
	Lines bool
	UDP   bool
	// Framing over TCP: wire.FramingUntilClose (also where empty), a connection
	// for each object, or wire.FramingLengthPrefixed, one for each server.
	Framing string
	// HTTP is how to send over HTTP; nil for TCP and UDP. Addresses are URLs then,
	// http[s]://host:port/in/<instrument>/.
	HTTP *HTTPConfig
	// From is the local address; the zero value leaves it to the system.
	From netip.Addr
	// Parallel objects on their way (TCP).
	Parallel int
	// Rate of objects or datagrams a second; 0 is no limit.
	Rate float64

	// TLS is how to send over TLS; nil for plain bytes. The server's name is that
	// of its address.
	TLS TLSConfig

	ConnectTimeout time.Duration
	// ReceiptTimeout is how long a server may take to answer, and to take more bytes.
	ReceiptTimeout time.Duration
	// HedgeAfter is how long a server may be silent at least before an object is
	// tried elsewhere too; 0 is for ever.
	HedgeAfter time.Duration
	// GiveUpAfter is how long an object is tried; 0 tries each address once.
	GiveUpAfter time.Duration

	// Yes sends all named files without a question. Ask has a person decide if files do not look like those of one instrument; if
	// it is nil, no person can be asked and nothing is sent then.
	Yes bool
	Ask func(question string) (bool, error)

	// Report is a file that gets a line of JSON for each object; none where empty.
	Report string
	Quiet  bool
	// Messages go here: progress and the summary, or, with a queue, the log.
	Messages io.Writer

	Queue QueueConfig
}

// Run sends everything and returns an error that says what was not received.
// When ctx ends it resets what is on its way and returns an error that wraps
// context.Canceled.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Queue.Dir != "" {
		return serve(ctx, cfg)
	}
	t := newTally(cfg.UDP)
	var rest leftovers
	defer rest.remove()
	in := input{paths: cfg.Paths, lines: cfg.Lines, stdin: cfg.Stdin, blank: func() { t.blank.Add(1) }, temporary: rest.add}
	if err := in.check(); err != nil {
		return err
	}
	if err := cfg.confirm(in); err != nil {
		return err
	}
	list, err := openReport(cfg.Report)
	if err != nil {
		return err
	}
	p := progress.Start(cfg.Messages, cfg.Quiet, t.state)
	r := &run{cfg: cfg, in: in, tally: t, report: list, troubles: troubles{show: func(text string) { p.Say("%s", text) }}}
	if !cfg.Lines {
		go r.count(ctx)
	}
	if cfg.UDP {
		err = r.sendDatagrams(ctx)
	} else {
		err = r.sendObjects(ctx)
	}
	p.Stop()
	if !cfg.Quiet {
		fmt.Fprintln(cfg.Messages, t.summary())
	}
	return errors.Join(r.conclude(ctx, err), list.close())
}

// leftovers are temporary files.
type leftovers struct {
	mu    sync.Mutex
	names []string
}

func (l *leftovers) add(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = append(l.names, name)
}

func (l *leftovers) remove() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range l.names {
		_ = os.Remove(name)
	}
}

// run is one run of the program.
type run struct {
	cfg      Config
	in       input
	tally    *tally
	report   *report
	troubles troubles

	failOnce sync.Once
	failure  error // what ended the run before its time
}

// count finds out how much there is to send, beside the sending.
func (r *run) count(ctx context.Context) {
	var n, bytes int64
	for _, path := range r.in.paths {
		if path == stdinName {
			return
		}
		for file, err := range files(path) {
			if err != nil || ctx.Err() != nil {
				return
			}
			n++
			bytes += file.size
		}
	}
	r.tally.known.Store(n)
	r.tally.knownBytes.Store(bytes)
}

// feed puts what there is to send into a channel, at the rate that is asked
// for. A read that never ends (standard input) does not hold the program.
func (r *run) feed(ctx context.Context) (items <-chan item, end <-chan error) {
	out, done := make(chan item), make(chan error, 1)
	limit := rate.Inf
	if r.cfg.Rate > 0 {
		limit = rate.Limit(r.cfg.Rate)
	}
	pace := rate.NewLimiter(limit, max(1, int(r.cfg.Rate/100)))
	go func() {
		defer close(out)
		for it, err := range r.in.items() {
			if err == nil {
				err = pace.Wait(ctx)
			}
			if err != nil {
				done <- err
				return
			}
			select {
			case out <- it:
			case <-ctx.Done():
				done <- ctx.Err()
				return
			}
		}
		done <- nil
	}()
	return out, done
}

func (r *run) sendObjects(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &sender{dialer: r.cfg.dialer(), tls: r.cfg.TLS, receiptTimeout: r.cfg.ReceiptTimeout, sent: r.tally.addSent, lost: r.tally.subtractLost}
	d := newDelivery(s.attempt, r.cfg.Addresses, r.cfg.HedgeAfter)
	d.giveUpAfter, d.again = r.cfg.GiveUpAfter, r.noteRetry
	switch {
	case r.cfg.HTTP != nil:
		w := newWeb(*r.cfg.HTTP, s)
		defer w.close()
		d.attempt = w.attempt
	case r.cfg.Framing == wire.FramingLengthPrefixed:
		p := newPipes(ctx, s)
		defer p.close()
		d.attempt = p.attempt
	}
	items, end := r.feed(ctx)
	var workers sync.WaitGroup
	for range max(1, r.cfg.Parallel) {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case it, ok := <-items:
					if !ok {
						return
					}
					if r.cfg.HTTP != nil {
						it.sentName, it.resumption = r.cfg.HTTP.nameOf(it.rel), newResumption("", nil)
					}
					r.note(d.deliver(ctx, it), cancel)
				}
			}
		})
	}
	workers.Wait()
	return r.ended(ctx, end)
}

func (r *run) sendDatagrams(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := &datagrams{dialer: r.cfg.dialer(), roster: newRoster(r.cfg.Addresses), giveUpAfter: r.cfg.GiveUpAfter, turned: r.noteUnreachable}
	items, end := r.feed(ctx)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case it, ok := <-items:
			if !ok {
				return errors.Join(d.finish(), r.ended(ctx, end))
			}
			result := d.send(ctx, it)
			r.tally.addSent(result.Bytes)
			r.note(result, cancel)
		}
	}
	return r.ended(ctx, end)
}

// ended returns why the run ended: its own failure, Ctrl-C or an unreadable input.
func (r *run) ended(ctx context.Context, end <-chan error) error {
	if r.failure != nil {
		return r.failure
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return <-end
}

func (cfg *Config) dialer() net.Dialer {
	d := net.Dialer{Timeout: cfg.ConnectTimeout}
	switch {
	case !cfg.From.IsValid():
	case cfg.UDP:
		d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(cfg.From, 0))
	default:
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(cfg.From, 0))
	}
	return d
}

// note counts a result and writes it to the report. A report that cannot be written ends the run:
// the sender would lose a result that it has received.
func (r *run) note(result Result, cancel context.CancelFunc) {
	r.tally.add(result)
	if err := r.report.write(result); err != nil {
		r.failOnce.Do(func() { r.failure = err })
		cancel()
	}
	if !result.ok() {
		r.troubles.say(string(result.Outcome)+string(result.Cause)+result.Server, "not received: "+result.Name+": "+result.Error)
	}
}

func (r *run) noteRetry(it item, address string, err error) {
	r.tally.repeats.Add(1)
	r.troubles.say(address+err.Error(), fmt.Sprintf("%s: %s: %v: trying again", address, it.name, err))
}

func (r *run) noteUnreachable(address string, err error) {
	r.tally.repeats.Add(1)
	r.troubles.say(address, fmt.Sprintf("%s: %v: no process listens there, and the datagrams just sent to it are lost", address, err))
}

// conclude turns what happened into the program's error.
func (r *run) conclude(ctx context.Context, err error) error {
	missing := r.tally.missing()
	switch {
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return fmt.Errorf("interrupted: %d %s were %s, %d were on their way%s: %w",
			r.tally.done.Load(), r.tally.noun, r.tally.verb(), missing, r.tally.explain(), context.Canceled)
	case missing > 0:
		return errors.Join(err, fmt.Errorf("%d of %d %s were not %s:%s",
			missing, missing+r.tally.done.Load(), r.tally.noun, r.tally.verb(), r.tally.explain()))
	case err != nil:
		return err
	case r.tally.done.Load() == 0:
		return errors.New("nothing to send: the input is empty")
	default:
		return nil
	}
}
