// SPDX-License-Identifier: Apache-2.0

// Command try measures how long `make try` takes from a clean clone to the first picture on the page in Chromium, with empty caches of Go and built.
//
// The checkout's commit is cloned into a folder of its own. Cold, the module cache and the build cache are empty folders (GOMODCACHE, GOCACHE): all modules come from
// the proxy that GOPROXY names, and all is compiled. Built, the same is run again -rounds times, each time with an empty data folder. The time is from the start of
// make until a page that was opened when `make try` said where it is has a picture: of a frame that a sample camera sent, which was archived, read, made into a
// picture, sent and archived again. Chromium runs before.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/substorm/substorm/bench/internal/browser"
	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/bench/internal/trial"
	"github.com/substorm/substorm/internal/testenv"
)

var (
	cold   = flag.Bool("cold", true, "begin with empty caches of Go; without, with those of this user, and measure only what is built")
	rounds = flag.Int("rounds", report.Rounds(5), "how often what is built is measured")
)

// The goals, in seconds.
const maxCold, maxBuilt = 300, 10

// The cases and candidates of the report.
const (
	ofClone, ofBuilt = "clean clone, empty caches", "built"
	page, picture    = "make try: the page answers", "make try: the page shows a picture"
	seconds          = "s"
)

func main() { lab.Run(run) }

func run(l *lab.Lab) error {
	flag.Parse()
	if *rounds < 1 {
		return errors.New("-rounds is at least 1")
	}
	checkout, err := testenv.Checkout()
	if err != nil {
		return err
	}
	dir := l.TempDir()
	m := &measurement{l: l, report: report.New("try", *rounds), clone: filepath.Join(dir, "substorm")}
	if out, err := exec.Command("git", "clone", "--quiet", checkout, m.clone).CombinedOutput(); err != nil {
		return fmt.Errorf("clone %s: %w\n%s", checkout, err, out)
	}
	if *cold { // writable, so that it can be removed
		m.variables = []string{"GOMODCACHE=" + filepath.Join(dir, "modules"), "GOCACHE=" + filepath.Join(dir, "build"), "GOFLAGS=-modcacherw"}
	}
	if m.browser, err = browser.Start(l); err != nil {
		return err
	}
	first, err := m.once()
	if err != nil {
		return err
	}
	if *cold {
		m.add(ofClone, first)
		m.report.Bound("cold-s", []float64{first.picture.Seconds()}, "<=", maxCold)
	}
	for range m.report.Each() {
		took, err := m.once()
		if err != nil {
			return err
		}
		m.add(ofBuilt, took)
	}
	m.report.Bound("built-s", m.report.Values(picture, ofBuilt), "<=", maxBuilt)
	return m.report.Finish()
}

type measurement struct {
	l         *lab.Lab
	report    *report.Report
	browser   *browser.Browser
	clone     string
	variables []string
}

// took is how long something took from the start of make.
type took struct{ page, picture time.Duration }

func (m *measurement) add(candidate string, is took) {
	m.report.Add(page, candidate, seconds, is.page.Seconds())
	m.report.Add(picture, candidate, seconds, is.picture.Seconds())
}

// once runs `make try` until its page shows a picture.
func (m *measurement) once() (is took, err error) {
	err = m.l.Part(func() error {
		begin := time.Now()
		t, err := trial.Start(m.l, m.clone, m.variables...)
		if err != nil {
			return err
		}
		tab, err := m.browser.Open(t.URL)
		if err != nil {
			return err
		}
		defer tab.Close()
		is.page = time.Since(begin)
		if err := t.Until(tab, "a picture", trial.Picture); err != nil {
			return err
		}
		is.picture = time.Since(begin)
		return nil
	})
	return is, err
}
