// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// lingerTimeout is how long a client has to read why it gets nothing.
	lingerTimeout = 5 * time.Second
	// aliveEvery is how often a client gets a keep-alive, if it does not state how long it waits.
	aliveEvery = 20 * time.Second
	// checkEvery is after how many bytes it is asked again whether an instrument is public.
	checkEvery = 256 << 10
	// maxLine is how long a line of a client's request may be.
	maxLine = 1024
)

// session is one client's connection.
type session struct {
	*Server
	conn    net.Conn
	kernel  kernel
	request *http.Request
	in      *input
	out     *output

	protocol int
	options  *options
	agreed   agreed
	filter   filter
	view     *view
	lists    lists

	// failed are the errors that the client gets at the end.
	failed    int32
	totalSize int64
	// held is memory that is given back at the end.
	held int64
	// shares are the bytes that were sent of each instrument, and told the instruments that were
	// reported to the client as not public any more.
	shares map[string]int64
	told   map[string]bool
	// looked is how many names were looked at.
	looked int
	// wrote is when something was sent last, and unwritten how many bytes of out.data the kernel has not taken yet.
	wrote     time.Time
	unwritten int64
	// patience is how long a read may take. Began is when the client began to say what it wants, and said how many
	// bytes it sent since.
	patience patience
	began    time.Time
	said     int64
	// startHeld is the memory that its options and filter take, of starts.
	startHeld int64
	pace      pace
	limit     *rate.Limiter
	// interrupted: nothing is read any more.
	reading     sync.Mutex
	interrupted bool
}

func (s *Server) newSession(conn net.Conn, request *http.Request) *session {
	is := &session{
		Server: s, conn: conn, kernel: newKernel(conn), request: request, options: &options{}, shares: map[string]int64{}, told: map[string]bool{},
		wrote: time.Now(), began: time.Now(), pace: pace{bounds: s.bounds},
		view: &view{catalog: s.cfg.Catalog, registry: s.cfg.Registry, since: time.Now().Add(-s.cfg.Window), memory: s.memory},
	}
	is.in, is.out = newInput(patient{is}), newOutput(paced{is})
	return is
}

// aliveEvery is how often the client is to hear that the connection is alive.
func (s *session) aliveEvery() time.Duration {
	if s.options.timeout > 0 {
		return max(s.options.timeout/3, time.Second)
	}
	return aliveEvery
}

// tick is called for each name that is looked at: clients choose how long that takes, by filters and wildcards.
// Errors: those of goesOn.
func (s *session) tick(ctx context.Context) error {
	if s.looked++; s.looked%askEvery != 0 {
		return nil
	}
	return s.checkClient(ctx)
}

// checkClient is called now and then in work that may take long while nothing is sent: it sends the client a keep-alive,
// and notices when the client is gone. Errors: ctx's, the connection's, the filter's refusal.
func (s *session) checkClient(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.keepAlive()
	switch {
	case s.out.err != nil:
		return s.out.err
	case s.kernel.isClosed():
		return errGone
	}
	return s.filter.failed
}

// keepAlive sends a client a keep-alive, if nothing was sent for a while.
func (s *session) keepAlive() {
	if !s.out.framed || time.Since(s.wrote) < s.aliveEvery() {
		return
	}
	if s.out.send(); s.protocol >= 31 {
		s.out.message(frameData, nil)
	} else {
		s.out.message(frameNoop, nil)
	}
}

// say sends a client a message.
func (s *session) say(kind int, format string, args ...any) {
	s.out.message(kind, []byte("substorm: "+fmt.Sprintf(format, args...)+"\n"))
}

// fail reports to a client that something that it asked for is not available.
func (s *session) fail(flag int32, format string, args ...any) {
	s.failed |= flag
	s.say(frameError, format, args...)
}

// tellWithdrawn reports to a client that an instrument is not public any more, once.
func (s *session) tellWithdrawn(instrument string) {
	if s.told[instrument] {
		return
	}
	s.told[instrument] = true
	s.metrics.over.Inc()
	s.tell(slog.LevelInfo, "the rest of an instrument is not sent: it is not public any more", "instrument", instrument, "remote", s.request.RemoteAddr)
	s.fail(failedGeneral, "instrument %s: %v", instrument, errOver)
}

// sent counts what was sent of an instrument.
func (s *session) sent(instrument string, bytes int64) {
	s.shares[instrument] += bytes
	s.metrics.files.Inc()
}

// serve is all of a connection.
func (s *session) serve(ctx context.Context) error {
	asked, err := s.greet()
	if err != nil || !asked {
		return err
	}
	if err := s.admit(); err != nil {
		return err
	}
	defer s.started()
	err = s.run(ctx)
	var refused *refusal
	if errors.As(err, &refused) {
		reason := refusedRequest
		switch {
		case errors.Is(err, errNoMemory):
			reason = refusedMemory
		case errors.Is(err, errFull):
			reason = refusedFull
		}
		s.metrics.refused.WithLabelValues(reason).Inc()
		s.farewell(refused)
		return nil
	}
	if err != nil && s.out.framed && ctx.Err() == nil && !isTheClients(err) {
		s.farewell(&refusal{exitPartial, "the archive cannot be read now: ask again later, and what you have stays"})
	}
	return err
}

// isTheClients reports whether an error is the client's or its connection's, and not the
// archive's.
func isTheClients(err error) bool {
	return errors.Is(err, errMalformed) || errors.Is(err, errSlow) || isGone(err)
}

// greet exchanges versions, and says whether the client asks for the module. Otherwise it
// is answered.
func (s *session) greet() (asked bool, err error) {
	s.out.text(fmt.Sprintf("@RSYNCD: %d.0 md5\n", newestProtocol) + s.motd())
	if err := s.out.flush(); err != nil {
		return false, err
	}
	line, err := s.in.line(maxLine)
	if err != nil {
		return false, err
	}
	var sub int
	if s.protocol, sub, err = parseGreeting(line); err != nil {
		return false, s.refuseStart(refusedProtocol, err.Error())
	}
	if sub != 0 && s.protocol <= newestProtocol { // a version that was not released
		s.protocol--
	}
	if s.protocol < oldestProtocol {
		return false, s.refuseStart(refusedProtocol, fmt.Sprintf("rsync 3.0.0 or newer is needed, which speaks protocol %d: yours speaks %d", oldestProtocol, s.protocol))
	}
	s.protocol = min(s.protocol, newestProtocol)
	if line, err = s.in.line(maxLine); err != nil {
		return false, err
	}
	switch line = strings.TrimSuffix(line, "\r"); {
	case line == "" || line == "#list":
		s.out.text(fmt.Sprintf("%-15s\t%s\n@RSYNCD: EXIT\n", s.cfg.Site, s.comment()))
		return false, s.out.flush()
	case strings.HasPrefix(line, "#"):
		return false, s.refuseStart(refusedRequest, fmt.Sprintf("the command %q is not understood here", line))
	case line != s.cfg.Site:
		return false, s.refuseStart(refusedRequest, fmt.Sprintf("there is no module %q: the only one is %s", line, s.cfg.Site))
	}
	return true, nil
}

// parseGreeting reads the version that a client speaks.
func parseGreeting(line string) (protocol, sub int, err error) {
	if n, _ := fmt.Sscanf(line, "@RSYNCD: %d.%d", &protocol, &sub); n < 1 || protocol < 0 || sub < 0 {
		return 0, 0, errors.New("this is an rsync server, and the client speaks another protocol")
	}
	return protocol, sub, nil
}

// motd is the first message to each client.
func (s *session) motd() string {
	return fmt.Sprintf("Archive of Site %s, read only: %s. Nothing is encrypted here.\n", s.cfg.Site, s.comment())
}

// comment says what the module has, and where the rest is.
func (s *session) comment() string {
	text := "public data received in the last " + days(s.cfg.Window)
	if s.cfg.BaseURL != "" {
		text += "; all of it at " + strings.TrimSuffix(s.cfg.BaseURL, "/") + "/archive/"
	}
	return text
}

// refuseStart answers in words, which a client reads until its transfer begins.
func (s *session) refuseStart(reason, text string) error {
	s.metrics.refused.WithLabelValues(reason).Inc()
	s.out.text("@ERROR: " + text + "\n")
	return s.out.flush()
}

// run is a transfer. Errors: a refusal, and those after which the client hears nothing.
func (s *session) run(ctx context.Context) error {
	if err := s.start(); err != nil {
		return err
	}
	leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	s.metrics.transfers.Inc()
	s.metrics.open.Inc()
	defer s.metrics.open.Dec()
	defer s.count()
	s.patience = naming
	defer s.freeLists()
	top, err := s.sources(ctx)
	if err != nil {
		return err
	}
	if err := s.sendFirst(ctx, top); err != nil {
		return err
	}
	if s.lists.open[0].size() == 0 {
		return s.linger()
	}
	s.patience = asking
	return s.transfer(ctx)
}

// start reads options, what the client can do, and the filter. Errors: as run.
func (s *session) start() error {
	arguments, err := readArguments(s.in)
	if err == nil && secluded(arguments) {
		var rest []string
		if rest, err = readArguments(s.in); len(rest) > 0 {
			arguments = append(arguments, rest[1:]...) // the first is the program's name
		}
	}
	if err != nil {
		return err
	}
	options, refused := parseArguments(s.cfg.Site, arguments)
	s.options, s.limit = options, options.limiter()
	agreed, disagreed, err := s.agree(options)
	if err != nil {
		return err
	}
	s.agreed = agreed
	s.in.framed, s.out.framed = true, true
	if refused = errors.Join(refused, disagreed); refused != nil {
		return refused
	}
	if s.protocol >= 31 {
		s.out.messageInt(frameIOTimeout, int32(idleTimeout/time.Second))
	}
	s.filter, err = readFilter(s.in)
	return err
}

func (s *session) freeLists() {
	for _, l := range s.lists.open {
		s.free(l)
	}
	s.lists.open = nil
	s.memory.Release(s.held)
	s.held = 0
}

// farewell reports to a client why it gets nothing, or no more.
func (s *session) farewell(refused *refusal) {
	s.cfg.Logger.Debug("refused", "remote", s.request.RemoteAddr, "why", refused.text)
	s.say(frameError, "%s", refused.text)
	if s.protocol >= 31 {
		s.out.message(frameErrorExit, binary.LittleEndian.AppendUint32(nil, uint32(refused.exit)))
	}
	_ = s.linger()
}

// linger waits until the client has read all, and closed the connection: what it still
// sends would have the kernel throw away what it did not read.
func (s *session) linger() error {
	if err := s.out.flush(); err != nil {
		return err
	}
	if half, can := s.conn.(interface{ CloseWrite() error }); can {
		_ = half.CloseWrite()
	}
	if err := s.conn.SetReadDeadline(time.Now().Add(lingerTimeout)); err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, s.conn, 1<<20)
	return nil
}

// count reports what was sent: if nothing of an instrument was sent, the client has all of it.
func (s *session) count() {
	if s.cfg.Count == nil {
		return
	}
	for instrument, bytes := range s.shares {
		status := http.StatusOK
		if bytes == 0 {
			status = http.StatusNotModified
		}
		s.cfg.Count(instrument, "", classOfAll, status, bytes)
	}
}
