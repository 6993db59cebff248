// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// readers ask feed servers over new connections, at a rate that may change.
type readers struct {
	addresses []string
	client    *http.Client
	// rate in requests a second.
	rate atomic.Int64

	mu     sync.Mutex
	since  time.Time
	counts counts
}

// counts are of answers.
type counts struct {
	took                      time.Duration
	answered, refused, failed int
}

func (c counts) all() int { return c.answered + c.refused + c.failed }

func (c counts) perSecond() float64 {
	if c.took <= 0 {
		return 0
	}
	return float64(c.all()) / c.took.Seconds()
}

func newReaders(addresses []string) *readers {
	return &readers{addresses: addresses, since: time.Now(),
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}}
}

// readPaths are what people look at.
var readPaths = []string{"/", "/archive/" + camera + "/", "/latest/" + camera, "/atom/" + camera + ".xml"}

// run asks until ctx ends. At most 64 requests wait for their answers at once.
func (r *readers) run(ctx context.Context) {
	waiting := make(chan struct{}, 64)
	for n := 0; ctx.Err() == nil; n++ {
		time.Sleep(time.Second / time.Duration(max(1, r.rate.Load())))
		waiting <- struct{}{}
		go func() {
			defer func() { <-waiting }()
			r.ask(ctx, r.addresses[n%len(r.addresses)]+readPaths[n%len(readPaths)])
		}()
	}
}

func (r *readers) ask(ctx context.Context, url string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return // a name of ours
	}
	resp, err := r.client.Do(request)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err == nil && resp.StatusCode == http.StatusTooManyRequests:
		r.counts.refused++
	case err != nil || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotFound: // nothing was sent yet
		r.counts.failed++
	default:
		r.counts.answered++
	}
}

// take returns the counts since it was called before.
func (r *readers) take() counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	is := r.counts
	is.took, r.since, r.counts = time.Since(r.since), time.Now(), counts{}
	return is
}
