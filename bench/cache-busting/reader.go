// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/substorm/substorm/bench/internal/web"
)

// reader is a page that keeps the newest image, as a browser's cache does.
type reader struct {
	latest string
	// address of who looks: feed-server limits each by itself.
	address string
	client  http.Client
	etag    string
	// seen are the digests of the images.
	seen map[string]bool
}

// look looks until the end, by a way.
func (p *reader) look(ctx context.Context, way string, first, end time.Time, every time.Duration) error {
	p.client.Transport = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 2}
	if way == push {
		ctx, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		time.Sleep(time.Until(first))
		if err := p.follow(ctx); ctx.Err() == nil {
			return fmt.Errorf("the events ended: %w", err)
		}
		return nil
	}
	for n := range asks {
		time.Sleep(time.Until(first.Add(time.Duration(n) * every)))
		var err error
		if way == busting {
			err = p.show(ctx, fmt.Sprintf("%s?t=%d", p.latest, time.Now().UnixMilli()), "")
		} else {
			err = p.show(ctx, p.latest, p.etag)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// show fetches an image, unless it still has the entity tag.
func (p *reader) show(ctx context.Context, from, etag string) error {
	resp, err := p.ask(ctx, from, "If-None-Match", etag)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	digest := sha256.New()
	n, err := io.Copy(digest, resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusNotModified && etag != "":
		return nil
	case resp.StatusCode != http.StatusOK || n != size:
		return fmt.Errorf("%s: %s, %d bytes", from, resp.Status, n)
	}
	p.etag = resp.Header.Get("Etag")
	p.seen[string(digest.Sum(nil))] = true
	return nil
}

func (p *reader) ask(ctx context.Context, from, header, value string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", web.Agent)
	r.Header.Set("X-Forwarded-For", p.address)
	if value != "" {
		r.Header.Set(header, value)
	}
	return p.client.Do(r)
}

// follow shows each image that it is told of.
func (p *reader) follow(ctx context.Context) error {
	resp, err := p.ask(ctx, p.latest+"/events", "Accept", "text/event-stream")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	base, err := url.Parse(p.latest)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		if !is {
			continue
		}
		var object struct{ URL string }
		if err := json.Unmarshal([]byte(data), &object); err != nil {
			return err
		}
		at, err := base.Parse(object.URL)
		if err != nil {
			return err
		}
		if err := p.show(ctx, at.String(), ""); err != nil {
			return err
		}
	}
	return lines.Err()
}
