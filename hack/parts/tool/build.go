// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/substorm/substorm/hack/progress"
)

// Build returns the absolute path of a built program, such as "nats-server". It builds the program first when this
// checkout's version of it was never built on this machine (minutes for a large one; p prints how far it is), and
// otherwise only looks. Several processes may call it at once.
func Build(ctx context.Context, p *progress.Printer, name string) (string, error) {
	t, err := Find(name)
	if err != nil {
		return "", err
	}
	c, err := openCache()
	if err != nil {
		return "", err
	}
	dir, err := c.moduleDir(t.Module)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, t.Name)
	if exists(path) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make space for %s: %w (SUBSTORM_CACHE can name another folder)", name, err)
	}
	step := p.Step("build %s", name)
	unlock, err := lock(filepath.Join(c.dir, t.Module+".lock"), step)
	if err != nil {
		step.Done(err)
		return "", err
	}
	defer unlock()
	if !exists(path) { // another process may have built it while this one waited for the lock
		err = t.build(ctx, filepath.Join(c.tools, t.Module), path, step)
	}
	step.Done(err)
	return path, err
}

func exists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// lock makes builds of one module take turns: at the same time they would compile the same packages twice.
func lock(path string, step *progress.Step) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		step.Detail("waiting for another process that builds this module")
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		step.Detail("")
	}
	return func() { f.Close() }, nil
}

func (t Tool) build(ctx context.Context, moduleDir, path string, step *progress.Step) error {
	goMod, err := os.ReadFile(filepath.Join(moduleDir, "go.mod"))
	if err != nil {
		return fmt.Errorf("build %s: %w", t.Name, err)
	}
	flags, err := t.flags(string(goMod))
	if err != nil {
		return err
	}
	unfinished := path + ".unfinished"
	defer os.Remove(unfinished)
	args := append([]string{"go", "build", "-v", "-o", unfinished}, flags...)
	args = append(args, t.Package)
	if nice, err := exec.LookPath("nice"); err == nil {
		args = append([]string{nice, "-n", "5"}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = moduleDir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	words, err := runFollowed(cmd, step)
	if err != nil {
		return t.explain(ctx, err, moduleDir, words)
	}
	if err := os.Rename(unfinished, path); err != nil {
		return fmt.Errorf("keep %s: %w", t.Name, err)
	}
	return nil
}

// runFollowed runs go build -v, shows how far it is, and returns the last lines that were not progress.
func runFollowed(cmd *exec.Cmd, step *progress.Step) (words []string, err error) {
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	words = follow(stderr, step)
	return words, cmd.Wait()
}

func follow(r io.Reader, step *progress.Step) (words []string) {
	const keep = 20
	compiled, fetched := 0, 0
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "go: downloading "):
			fetched++
			step.Detail("%d modules downloaded, last %s", fetched, strings.TrimPrefix(line, "go: downloading "))
		case !strings.ContainsAny(line, " \t:#"): // -v prints the import path of each package that it compiles
			compiled++
			step.Detail("%d packages compiled, last %s", compiled, line)
		default:
			words = append(words, line)
			words = words[max(0, len(words)-keep):]
		}
	}
	return words
}

// explain turns a failed build into an error that says what to do.
func (t Tool) explain(ctx context.Context, err error, moduleDir string, words []string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("build of %s interrupted: what was compiled is kept, run it again to go on", t.Name)
	}
	text := strings.Join(words, "\n")
	next := fmt.Sprintf("the module is %s: see what go says there, then run `go run ./hack/parts %s` again", moduleDir, t.Name)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		next = "install Go and put it in the PATH"
	case strings.Contains(text, "no space left on device"):
		next = "the disk is full: free about 6 GB, or set SUBSTORM_CACHE, GOCACHE and GOMODCACHE to a larger disk"
	case strings.Contains(text, "dial tcp") || strings.Contains(text, "no such host") || strings.Contains(text, "timeout"):
		next = "the Go modules could not be fetched: check the network and `go env GOPROXY`, then run it again"
	}
	return fmt.Errorf("build %s: %w\n%s\nNext: %s", t.Name, err, text, next)
}
