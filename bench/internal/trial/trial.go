// SPDX-License-Identifier: Apache-2.0

// Package trial runs `make try`, as a new user of Substorm does, and looks at its page with Chromium.
package trial

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/substorm/substorm/bench/internal/browser"
)

// Patience is how long it may take until the page shows something: the first time all is fetched and compiled.
const Patience = 30 * time.Minute

// camera is where a sample instrument sends to: docs/samples/try has fixed ports.
const camera = "127.0.0.1:30101"

// The states of a page, as expressions of its scripts.
const (
	// Picture: at least one is there in full.
	Picture = `[...document.querySelectorAll("#pictures figure img")].some(i => i.complete && i.naturalWidth > 0)`
	// Line: the line of the dataset is drawn, and continues.
	Line = `document.querySelectorAll("#chart .trace").length > 0 && document.getElementById("line-state").textContent.startsWith("live")`
	// Flowing: data of all instruments arrives.
	Flowing = `[...document.querySelectorAll("tr[data-name]")].every(r => r.dataset.state === "Flowing")`
)

// Trial is one run.
type Trial struct {
	// URL of the page.
	URL string

	command *exec.Cmd
	ended   context.Context
}

// serves is the line in which `substorm up` says where the page is.
var serves = regexp.MustCompile(`^\s+serves\s+(http://\S+)`)

// Start runs it in a checkout, with variables beside those of this process, and returns once it says where its page is. It ends with
// the lab, or by Stop.
func Start(l testing.TB, checkout string, variables ...string) (*Trial, error) {
	if conn, err := net.Dial("tcp", camera); err == nil {
		return nil, errors.Join(fmt.Errorf("something listens at %s already: end the `make try` that runs", camera), conn.Close())
	}
	out, in := io.Pipe()
	t := &Trial{command: exec.Command("make", "--no-print-directory", "try")}
	t.command.Dir, t.command.Env = checkout, append(os.Environ(), variables...)
	t.command.Stdout, t.command.Stderr = os.Stderr, in
	t.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it is interrupted as by a terminal: all of it
	if err := t.command.Start(); err != nil {
		return nil, err
	}
	ended, end := context.WithCancelCause(context.Background())
	t.ended = ended
	go func() {
		err := t.command.Wait()
		_ = in.Close()
		end(fmt.Errorf("`make try` has ended: %w", errors.Join(err, context.Canceled)))
	}()
	l.Cleanup(t.Stop)
	url := make(chan string, 1)
	go tell(out, url)
	select {
	case t.URL = <-url:
		return t, nil
	case <-ended.Done():
		return nil, context.Cause(ended)
	case <-time.After(Patience):
		return nil, fmt.Errorf("`make try` does not say where its page is after %v", Patience)
	}
}

// tell passes on what is said, and the first URL of it.
func tell(said io.Reader, url chan<- string) {
	for lines := bufio.NewScanner(said); lines.Scan(); {
		fmt.Fprintln(os.Stderr, lines.Text())
		if found := serves.FindStringSubmatch(lines.Text()); found != nil {
			select {
			case url <- found[1]:
			default:
			}
		}
	}
}

// Until waits until an expression of the page's scripts is true.
func (t *Trial) Until(tab *browser.Tab, what, expression string) error {
	ctx, cancel := context.WithTimeout(t.ended, Patience)
	defer cancel()
	for {
		var is bool
		err := tab.Read(expression, &is)
		if err == nil && is {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the page never shows %s: %w", what, context.Cause(ctx)), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Stop interrupts it, and waits for its end.
func (t *Trial) Stop() {
	_ = syscall.Kill(-t.command.Process.Pid, syscall.SIGINT) // it may have ended
	<-t.ended.Done()
}
