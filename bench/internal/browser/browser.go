// SPDX-License-Identifier: Apache-2.0

// Package browser is Chromium without a window, whose pages measure.
package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// Browser is one Chromium.
type Browser struct{ ctx context.Context }

// Timeout is how long a tab may take to answer.
const Timeout = 30 * time.Second

// Start starts it; it ends with the lab.
func Start(l testing.TB) (*Browser, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(l.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		// A page in the background would be slowed down.
		chromedp.Flag("disable-background-timer-throttling", true), chromedp.Flag("disable-renderer-backgrounding", true),
		chromedp.Flag("disable-backgrounding-occluded-windows", true))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	l.Cleanup(func() { cancel(); stop() })
	if _, err := chromedp.Run(ctx, chromedp.Navigate("about:blank")); err != nil {
		return nil, fmt.Errorf("start Chromium: install Debian's chromium: %w", err)
	}
	return &Browser{ctx}, nil
}

// Tab is a page.
type Tab struct {
	ctx   context.Context
	close context.CancelFunc
}

// Open opens a page.
func (b *Browser) Open(url string) (*Tab, error) {
	ctx, cancel := chromedp.NewContext(b.ctx)
	if _, err := chromedp.Run(ctx, chromedp.Navigate(url)); err != nil {
		cancel()
		return nil, fmt.Errorf("open %s: %w", url, err)
	}
	return &Tab{ctx, cancel}, nil
}

// Close closes the page.
func (t *Tab) Close() { t.close() }

// Read reads a value of the page's scripts.
func (t *Tab) Read(expression string, into any) error {
	ctx, cancel := context.WithTimeout(t.ctx, Timeout)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("JSON.stringify("+expression+")"))
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), into)
}
