// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Seen is what a page did since it was opened.
type Seen struct {
	// Requests are the URLs that it asked for; Complaints what the browser or its scripts
	// logged as a warning or an error, and what its scripts threw.
	Requests, Complaints []string
}

// Watched is a page whose requests, and the browser's complaints about it, are recorded.
type Watched struct {
	*Tab

	mu   sync.Mutex
	seen Seen
}

// Watch opens a page, and sees what it does from its first request on.
func (b *Browser) Watch(url string) (*Watched, error) {
	ctx, cancel := chromedp.NewContext(b.ctx)
	w := &Watched{Tab: &Tab{ctx, cancel}}
	if err := w.open(ctx, url); err != nil {
		cancel()
		return nil, fmt.Errorf("open %s: %w", url, err)
	}
	return w, nil
}

func (w *Watched) open(ctx context.Context, url string) error {
	if err := chromedp.Listen(ctx, w.see); err != nil {
		return err
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		return err
	}
	if _, err := chromedp.Call(ctx, log.Enable, cdp.Empty{}); err != nil {
		return err
	}
	_, err := chromedp.Run(ctx, chromedp.Navigate(url))
	return err
}

func (w *Watched) see(event any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch is := event.(type) {
	case *network.EventRequestWillBeSent:
		w.seen.Requests = append(w.seen.Requests, is.Request.URL)
	case *log.EventEntryAdded:
		if is.Entry.Level == log.EntryLevelWarning || is.Entry.Level == log.EntryLevelError {
			w.seen.Complaints = append(w.seen.Complaints, is.Entry.Text+" "+is.Entry.URL)
		}
	case *runtime.EventConsoleAPICalled:
		if is.Type == runtime.ConsoleAPICalledTypeError || is.Type == runtime.ConsoleAPICalledTypeWarning {
			w.seen.Complaints = append(w.seen.Complaints, "the console was told something of type "+is.Type.String())
		}
	case *runtime.EventExceptionThrown:
		w.seen.Complaints = append(w.seen.Complaints, is.ExceptionDetails.Text+" "+is.ExceptionDetails.URL)
	}
}

// Seen returns what the page did so far.
func (w *Watched) Seen() Seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Seen{slices.Clone(w.seen.Requests), slices.Clone(w.seen.Complaints)}
}

// Do runs a script in the page.
func (t *Tab) Do(script string) error {
	var done bool
	return t.Read("(() => { "+script+"; return true })()", &done)
}

// Resize gives the page so many pixels, on a screen that is dark or light.
func (t *Tab) Resize(width, height int64, dark bool) error {
	ctx, cancel := context.WithTimeout(t.ctx, Timeout)
	defer cancel()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}); err != nil {
		return err
	}
	_, err := chromedp.Run(ctx, chromedp.EmulateViewport(width, height))
	return err
}

// Picture is what all of the page looks like, as PNG.
func (t *Tab) Picture() ([]byte, error) {
	ctx, cancel := context.WithTimeout(t.ctx, Timeout)
	defer cancel()
	return chromedp.Run(ctx, chromedp.FullScreenshot(100))
}
