// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is Chromium without a window.
type browser struct{ ctx context.Context }

// tabTimeout is how long a tab may take to answer.
const tabTimeout = 30 * time.Second

func startBrowser(l testing.TB) (*browser, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(l.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("js-flags", "--expose-gc"),
		// A page that nobody looks at would be slowed down.
		chromedp.Flag("disable-background-timer-throttling", true), chromedp.Flag("disable-renderer-backgrounding", true),
		chromedp.Flag("disable-backgrounding-occluded-windows", true))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	l.Cleanup(func() { cancel(); stop() })
	if _, err := chromedp.Run(ctx, chromedp.Navigate("about:blank")); err != nil {
		return nil, fmt.Errorf("start Chromium: install Debian's chromium: %w", err)
	}
	return &browser{ctx}, nil
}

// tab is a live page.
type tab struct {
	ctx   context.Context
	close context.CancelFunc
}

// open opens the page: by says how it asks, from where.
func (b *browser) open(page, by, from string) (*tab, error) {
	ctx, cancel := chromedp.NewContext(b.ctx)
	if _, err := chromedp.Run(ctx, chromedp.Navigate(page+"/?by="+by+"&from="+url.QueryEscape(from))); err != nil {
		cancel()
		return nil, fmt.Errorf("open the page by %s: %w", by, err)
	}
	return &tab{ctx, cancel}, nil
}

// seen is what a page says of itself.
type seen struct {
	Samples int64                `json:"samples"`
	Bytes   int64                `json:"bytes"`
	Delays  map[string][]float64 `json:"delays"`
	Error   string               `json:"error"`
}

func (t *tab) seen() (seen, error) {
	var s seen
	ctx, cancel := context.WithTimeout(t.ctx, tabTimeout)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("JSON.stringify(window.seen)"))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return s, err
	}
	if s.Error != "" {
		return s, errors.New(s.Error)
	}
	return s, nil
}

// heap is what the page's scripts hold after their garbage is collected, in bytes.
func (t *tab) heap() (bytes float64, err error) {
	ctx, cancel := context.WithTimeout(t.ctx, tabTimeout)
	defer cancel()
	if _, err := chromedp.Call(ctx, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
		return 0, err
	}
	usage, err := chromedp.Call(ctx, runtime.GetHeapUsage, cdp.Empty{})
	return usage.UsedSize + usage.BackingStorageSize, err
}
