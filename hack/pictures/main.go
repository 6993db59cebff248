// SPDX-License-Identifier: Apache-2.0

// Command pictures makes the pictures of the documentation with a real browser: `make pictures`. It runs what `make try` runs,
// and has Chromium look at its page.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/substorm/substorm/hack/paths"
	"github.com/substorm/substorm/hack/progress"
)

// folder of the pictures in a checkout.
const folder = "docs/pictures"

// lineFor is how long the live line grows before it is taken a picture of.
const lineFor = 2 * time.Minute

func main() { progress.Main("pictures", run) }

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("pictures", flag.ContinueOnError)
	browser := flags.String("browser", "chromium", "the browser: Chromium, or what takes its flags")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chromium, err := exec.LookPath(*browser)
	if err != nil {
		return fmt.Errorf("%w: install Debian's chromium, or name another with -browser", err)
	}
	root, err := paths.Checkout()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "substorm-pictures-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	p := progress.New(os.Stderr)
	url, runs, stop, err := try(ctx, p, root, tmp)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := await(runs, p, url); err != nil {
		return err
	}
	target := filepath.Join(root, folder, "page.png")
	step := p.Step("make %s", filepath.Join(folder, "page.png"))
	err = errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), take(ctx, chromium, tmp, url, target))
	step.Done(err)
	return err
}

// try runs `make try` at a free port, and returns the URL of its page, a context that ends with it, and what ends it.
func try(ctx context.Context, p *progress.Printer, root, tmp string) (url string, runs context.Context, stop func() error, err error) {
	program := filepath.Join(tmp, "try")
	step := p.Step("build hack/try")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./hack/try")
	build.Dir = root
	out, err := build.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	step.Done(err)
	if err != nil {
		return "", nil, nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, nil, err
	}
	address := l.Addr().String()
	_ = l.Close()
	c := exec.Command(program, "-listen", address)
	c.Dir, c.Stdout, c.Stderr = root, os.Stderr, os.Stderr
	if err := c.Start(); err != nil {
		return "", nil, nil, err
	}
	runs, end := context.WithCancelCause(ctx)
	done := make(chan error, 1)
	go func() {
		err := c.Wait()
		end(fmt.Errorf("hack/try has ended: %w", errors.Join(err, context.Canceled)))
		done <- err
	}()
	return "http://" + address + "/", runs, func() error {
		_ = c.Process.Signal(os.Interrupt) // it may have ended
		return <-done
	}, nil
}

// await waits until the page has all there is to see.
func await(ctx context.Context, p *progress.Printer, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	step := p.Step("wait for a picture on the page, and two minutes of the line")
	var seen time.Time
	for seen.IsZero() || time.Since(seen) < lineFor {
		select {
		case <-ctx.Done():
			err := context.Cause(ctx)
			step.Done(err)
			return err
		case <-time.After(time.Second):
		}
		if seen.IsZero() && shows(ctx, url) {
			seen = time.Now()
		}
	}
	step.Done(nil)
	return nil
}

// shows says whether the page shows a picture, and that data of all instruments flows.
func shows(ctx context.Context, url string) bool {
	var page struct {
		Instruments []struct {
			State   string
			Picture *struct{}
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"?format=json", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK || json.NewDecoder(resp.Body).Decode(&page) != nil {
		return false
	}
	pictures := 0
	for _, in := range page.Instruments {
		if in.State != "Flowing" {
			return false
		}
		if in.Picture != nil {
			pictures++
		}
	}
	return pictures > 0
}

// take takes a picture of a page. The page never ends to load, as events go on: it is taken after some seconds.
func take(ctx context.Context, chromium, tmp, url, target string) error {
	c := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb", "--lang=en",
		"--user-data-dir="+filepath.Join(tmp, "browser"), "--window-size=1200,1400", "--timeout=8000", "--screenshot="+target, url)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", chromium, err, out)
	}
	if info, err := os.Stat(target); err != nil || info.Size() == 0 {
		return errors.Join(fmt.Errorf("%s made no picture", chromium), err)
	}
	return nil
}
