// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sender

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// config is patient enough for a busy machine and gives up at once.
func config(t *testing.T, paths ...string) Config {
	t.Helper()
	return Config{
		Paths: paths, Parallel: 1, ConnectTimeout: 20 * time.Second, ReceiptTimeout: 20 * time.Second,
		Report: filepath.Join(t.TempDir(), "report.jsonl"), Messages: &bytes.Buffer{},
	}
}

func randomFile(t *testing.T, size int) string {
	t.Helper()
	data := make([]byte, size)
	_, _ = rand.Read(data)
	path := filepath.Join(t.TempDir(), "frame.bin")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func readReport(t *testing.T, cfg Config) []Result {
	t.Helper()
	f, err := os.Open(cfg.Report)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []Result
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r Result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("report line %q: %v", lines.Text(), err)
		}
		all = append(all, r)
	}
	return all
}

func fileDigest(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// onlyReceiptsCount: what each kind of answer means for an object.
func TestOnlyAReceiptCounts(t *testing.T) {
	const big = 8 << 20 // more than socket buffers hold
	for name, c := range map[string]struct {
		behave  func(*peer, *net.TCPConn)
		size    int
		outcome Outcome
		cause   wire.Cause
		says    string
		timeout time.Duration
	}{
		"a receipt":                        {behave: good, outcome: Received},
		"a receipt without more":           {behave: goodWith(""), outcome: Received},
		"a receipt for a large object":     {behave: good, size: big, outcome: Received},
		"bare close":                       {behave: bareClose, outcome: Unknown, says: "closed without a receipt"},
		"reset after the last byte":        {behave: reset, outcome: Unknown, says: "reset"},
		"reset after ten bytes":            {behave: resetEarly, size: big, outcome: Unsent},
		"receipt with another digest":      {behave: wrongDigest, outcome: Unknown, says: "other bytes"},
		"receipt with another size":        {behave: wrongSize, outcome: Unknown, says: "other bytes"},
		"receipt without its LF":           {behave: unfinishedLine, outcome: Unknown, says: "closed without a receipt"},
		"an HTTP server":                   {behave: httpServer, outcome: Unknown, says: "is it a gateway?"},
		"a line without end":               {behave: babble, outcome: Unknown, says: "is it a gateway?"},
		"silence":                          {behave: silence, outcome: Unknown, says: "no receipt within", timeout: 300 * time.Millisecond},
		"a server that takes no byte":      {behave: stall, size: 2 * big, outcome: Unsent, says: "took no byte", timeout: 300 * time.Millisecond},
		"a receipt before the end":         {behave: receiptTooEarly, size: 2 * big, outcome: Unsent, says: "before the object was sent"},
		"refused for good":                 {behave: refuse(wire.CauseUnknownSource), outcome: Refused, cause: wire.CauseUnknownSource, says: "spec.listeners"},
		"refused for now":                  {behave: refuse(wire.CauseStoreUnavailable), outcome: Refused, cause: wire.CauseStoreUnavailable, says: "object store"},
		"refused for a reason of later on": {behave: refuse("NotAgain"), outcome: Refused, cause: "NotAgain", says: "refused NotAgain"},
		"refused while we send":            {behave: refuseEarly(wire.CauseObjectTooLarge), size: 2 * big, outcome: Refused, cause: wire.CauseObjectTooLarge, says: "maxObjectSize"},
		"refused and reset while we send":  {behave: refuseAndReset(wire.CauseObjectTooLarge), size: 2 * big, outcome: Refused, cause: wire.CauseObjectTooLarge, says: "maxObjectSize"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, c.behave)
			path := randomFile(t, max(c.size, 1000))
			cfg := config(t, path)
			cfg.Addresses = []string{p.address()}
			if c.timeout > 0 {
				cfg.ReceiptTimeout = c.timeout
			}
			err := Run(t.Context(), cfg)
			if (err == nil) != (c.outcome == Received) {
				t.Errorf("exit: %v", err)
			}
			results := readReport(t, cfg)
			if len(results) != 1 {
				t.Fatalf("report: %+v", results)
			}
			r := results[0]
			if r.Outcome != c.outcome || r.Cause != c.cause || r.Name != path || r.Tries != 1 || r.Server != p.address() {
				t.Errorf("report: %+v", r)
			}
			if err != nil && (!strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path)) {
				t.Errorf("the error names not both the file and %q: %v", c.says, err)
			}
			if c.outcome == Received && (r.SHA256 != fileDigest(t, path) || r.Bytes != int64(max(c.size, 1000)) || r.ReceiptedAt == nil || r.Error != "") {
				t.Errorf("report: %+v", r)
			}
			if c.outcome != Received && r.ReceiptedAt != nil {
				t.Errorf("reported as receipted: %+v", r)
			}
		})
	}
}

// TestSentAgain: what has no receipt is sent again until it has one, and once more is not sent.
func TestSentAgain(t *testing.T) {
	for name, behave := range map[string]func(*peer, *net.TCPConn){
		"bare close": bareClose, "reset": reset, "early reset": resetEarly, "wrong digest": wrongDigest, "no LF": unfinishedLine,
		"store away": refuse(wire.CauseStoreUnavailable), "draining": refuseAndReset(wire.CauseDraining), "HTTP": httpServer,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, behave, behave, good)
			cfg := config(t, randomFile(t, 300_000))
			cfg.Addresses, cfg.GiveUpAfter = []string{p.address()}, time.Hour
			if err := Run(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			results := readReport(t, cfg)
			if len(results) != 1 || results[0].Outcome != Received || results[0].Tries != 3 || p.connections() != 3 {
				t.Errorf("%d connections, report %+v", p.connections(), results)
			}
		})
	}
}

// TestPermanentRefusal: what another try cannot change is not tried again, also at no other server.
func TestPermanentRefusal(t *testing.T) {
	for cause := range permanent {
		t.Run(string(cause), func(t *testing.T) {
			t.Parallel()
			p, q := newPeer(t, refuse(cause)), newPeer(t, refuse(cause))
			cfg := config(t, randomFile(t, 100))
			cfg.Addresses, cfg.GiveUpAfter = []string{p.address(), q.address()}, time.Hour
			err := Run(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), advice[cause]) {
				t.Errorf("the error says not what to do: %v", err)
			}
			if n := p.connections() + q.connections(); n != 1 {
				t.Errorf("tried %d times", n)
			}
		})
	}
}

// TestUnknownStaysUnknown: an object that may be stored is not reported as refused because a later try was.
func TestUnknownStaysUnknown(t *testing.T) {
	p := newPeer(t, bareClose, refuse(wire.CauseRetired))
	cfg := config(t, randomFile(t, 100))
	cfg.Addresses, cfg.GiveUpAfter = []string{p.address()}, time.Hour
	if err := Run(t.Context(), cfg); err == nil {
		t.Error("no error")
	}
	if r := readReport(t, cfg); len(r) != 1 || r[0].Outcome != Unknown || r[0].SHA256 == "" {
		t.Errorf("report: %+v", r)
	}
}

// TestFailover: of several servers one works, and each object is received once.
func TestFailover(t *testing.T) {
	working := newPeer(t, good)
	bare, full := newPeer(t, bareClose), newPeer(t, refuse(wire.CauseStreamFull))
	cfg := config(t, t.TempDir())
	want := map[string]bool{}
	for i := range 40 {
		path := filepath.Join(cfg.Paths[0], fmt.Sprintf("frame-%02d", i))
		if err := os.WriteFile(path, fmt.Appendf(nil, "frame %d", i), 0o600); err != nil {
			t.Fatal(err)
		}
		want[fileDigest(t, path)] = true
	}
	cfg.Addresses = []string{deadAddress(t), bare.address(), full.address(), working.address()}
	cfg.Parallel, cfg.GiveUpAfter = 4, time.Hour
	if err := Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for _, r := range readReport(t, cfg) {
		if !want[r.SHA256] || r.Outcome != Received || r.Server != working.address() {
			t.Errorf("report: %+v", r)
		}
		delete(want, r.SHA256)
	}
	if len(want) > 0 {
		t.Errorf("%d objects are not in the report", len(want))
	}
	if all, different := working.arrived(); all != 40 || different != 40 {
		t.Errorf("%d objects arrived at the working server, %d different ones", all, different)
	}
	// Servers that fail have pauses: not every object knocks at each of them.
	if n := bare.connections() + full.connections(); n > 40 {
		t.Errorf("%d connections to servers that do not work", n)
	}
}

// TestServerComesLate: the server begins to listen while we already try.
func TestServerComesLate(t *testing.T) {
	address := deadAddress(t)
	cfg := config(t, randomFile(t, 1000))
	said := &testLog{}
	cfg.Addresses, cfg.GiveUpAfter, cfg.Messages = []string{address}, time.Hour, said
	done := make(chan error, 1)
	go func() { done <- Run(t.Context(), cfg) }()
	waitFor(t, func() bool { return strings.Contains(said.String(), "trying again") })
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		data, _ := io.ReadAll(c)
		_, _ = io.WriteString(c, wire.Receipt{Digest: sha256.Sum256(data), Bytes: int64(len(data))}.Line())
		c.Close()
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestGiveUp: nothing is tried for ever, and the report says what was not received.
func TestGiveUp(t *testing.T) {
	cfg := config(t, randomFile(t, 10), randomFile(t, 10), randomFile(t, 10))
	cfg.Addresses, cfg.GiveUpAfter = []string{deadAddress(t)}, time.Millisecond
	err := Run(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "3 of 3 objects were not received") {
		t.Errorf("got %v", err)
	}
	results := readReport(t, cfg)
	for _, r := range results {
		if r.Outcome != Unsent || r.Error == "" || r.SHA256 != "" {
			t.Errorf("report: %+v", r)
		}
	}
	if len(results) != 3 {
		t.Errorf("%d lines of report", len(results))
	}
}

// TestInterrupt: Ctrl-C resets the object on its way, so that no half passes for a whole, and reports.
func TestInterrupt(t *testing.T) {
	started := make(chan struct{})
	p := newPeer(t, good, func(p *peer, c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, 10))
		close(started)
		p.receive(c)
	})
	first, second := randomFile(t, 100), randomFile(t, 100)
	if err := os.Truncate(second, 1<<40); err != nil { // longer than it can be sent
		t.Fatal(err)
	}
	cfg := config(t, first, second)
	cfg.Addresses, cfg.GiveUpAfter = []string{p.address()}, time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	err := Run(ctx, cfg)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), second) {
		t.Errorf("got %v", err)
	}
	results := readReport(t, cfg)
	if len(results) != 2 || results[0].Outcome != Received || results[1].Outcome != Unsent {
		t.Errorf("report: %+v", results)
	}
	waitFor(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.resets == 1 })
	if all, _ := p.arrived(); all != 1 {
		t.Errorf("%d objects arrived as wholes, 1 was sent to its end", all)
	}
}

// TestUnreadableFile: a file that cannot be read to its end arrives as nothing.
func TestUnreadableFile(t *testing.T) {
	p := newPeer(t, good)
	broken := errors.New("input/output error")
	s := &sender{receiptTimeout: 20 * time.Second, sent: func(int64) {}, lost: func(int64) {}}
	v := s.attempt(t.Context(), p.address(), item{name: "bad disk", open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), failing{broken})), nil
	}}, newPulse())
	if !v.local || !errors.Is(v.err, broken) || v.whole {
		t.Errorf("verdict: %+v", v)
	}
	waitFor(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.resets == 1 })
	if all, _ := p.arrived(); all != 0 {
		t.Error("half an object passed for a whole")
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// waitFor asks for a minute and a half: the kernel gives up connecting to a hole after two minutes, and tests are not to be saved by that.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for range testenv.AttemptsFor(90 * time.Second) {
		if done() {
			return
		}
	}
	t.Fatal("it never came to pass")
}

// TestReportIsAppended: an earlier run's receipts stay.
func TestReportIsAppended(t *testing.T) {
	p := newPeer(t, good)
	cfg := config(t, randomFile(t, 10))
	cfg.Addresses = []string{p.address()}
	for range 2 {
		if err := Run(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(readReport(t, cfg)); n != 2 {
		t.Errorf("%d lines, want 2", n)
	}
}

// TestReportThatCannotBeWritten ends the run: a receipt that is not recorded is lost.
func TestReportThatCannotBeWritten(t *testing.T) {
	p := newPeer(t, good)
	cfg := config(t, randomFile(t, 10), randomFile(t, 10))
	cfg.Addresses, cfg.Report = []string{p.address()}, "/dev/full"
	if err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "report") {
		t.Errorf("got %v", err)
	}
	cfg.Report = filepath.Join(t.TempDir(), "no", "such", "folder")
	if err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "report") {
		t.Errorf("got %v", err)
	}
}

func TestQuiet(t *testing.T) {
	p := newPeer(t, bareClose, good)
	cfg := config(t, randomFile(t, 10))
	var said bytes.Buffer
	cfg.Addresses, cfg.Quiet, cfg.Messages, cfg.GiveUpAfter = []string{p.address()}, true, &said, time.Hour
	if err := Run(t.Context(), cfg); err != nil || said.Len() > 0 {
		t.Errorf("said %q, %v", said.String(), err)
	}
	cfg.Quiet = false
	if err := Run(t.Context(), cfg); err != nil || !strings.Contains(said.String(), "received 1 objects") {
		t.Errorf("said %q, %v", said.String(), err)
	}
}
