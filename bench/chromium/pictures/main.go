// SPDX-License-Identifier: Apache-2.0

// Command pictures makes the pictures of the documentation with a real browser: `make pictures`. It runs `make try`, and has Chromium
// look at its page until that shows all there is to see.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/substorm/substorm/bench/internal/browser"
	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/trial"
	"github.com/substorm/substorm/internal/testenv"
)

// folder of the pictures in a checkout.
const folder = "docs/pictures"

// The size of the window in pixels: as wide as a README is shown, and as high as it needs.
const width, height = 1000, 600

var lineFor = flag.Duration("line", time.Minute, "how long the live line goes on before its picture is taken")

func main() { lab.Run(run) }

func run(l *lab.Lab) error {
	flag.Parse()
	root, err := testenv.Checkout()
	if err != nil {
		return err
	}
	b, err := browser.Start(l)
	if err != nil {
		return err
	}
	t, err := trial.Start(l, root)
	if err != nil {
		return err
	}
	tab, err := b.Open(t.URL)
	if err != nil {
		return err
	}
	if err := tab.Resize(width, height, false); err != nil {
		return err
	}
	show := func() error {
		for _, is := range []struct{ what, expression string }{
			{"a picture", trial.Picture}, {"the live line", trial.Line}, {"data of all instruments", trial.Flowing}} {
			if err := t.Until(tab, is.what, is.expression); err != nil {
				return err
			}
		}
		return nil
	}
	if err := show(); err != nil {
		return err
	}
	l.Logf("the page shows a picture and the line; its own picture is taken in %v", *lineFor)
	time.Sleep(*lineFor)
	if err := show(); err != nil {
		return err
	}
	target := filepath.Join(root, folder, "page.png")
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	data, err := tab.Picture()
	if err != nil {
		return fmt.Errorf("take a picture of %s: %w", t.URL, err)
	}
	l.Logf("%s: %d KiB", target, len(data)>>10)
	return os.WriteFile(target, data, 0o644)
}
