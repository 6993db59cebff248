// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net/url"

	"github.com/substorm/substorm/bench/internal/browser"
)

// tabTimeout is how long a tab may take to answer.
const tabTimeout = browser.Timeout

// tab is a live page.
type tab struct{ *browser.Tab }

// open opens the page: by says how it asks, from where.
func open(b *browser.Browser, page, by, from string) (*tab, error) {
	t, err := b.Open(page + "/?by=" + by + "&from=" + url.QueryEscape(from))
	return &tab{t}, err
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
	if err := t.Read("window.seen", &s); err != nil {
		return s, err
	}
	if s.Error != "" {
		return s, errors.New(s.Error)
	}
	return s, nil
}
