// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
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

func (c counts) perSecond() float64 { return c.rate(c.answered + c.refused + c.failed) }

// unserved are requests a second without an answer that is 200.
func (c counts) unserved() float64 { return c.rate(c.refused + c.failed) }

func (c counts) rate(n int) float64 {
	if c.took <= 0 {
		return 0
	}
	return float64(n) / c.took.Seconds()
}

func newReaders(addresses []string) *readers {
	return &readers{addresses: addresses, since: time.Now(),
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}}
}

// readPaths are what people look at.
var readPaths = []string{"/", "/archive/" + stormCamera + "/", "/latest/" + stormCamera, "/atom/" + stormCamera + ".xml"}

// wait waits until there is something to read: a 404 is a failure from then on.
func (r *readers) wait(ctx context.Context) error {
	for _, address := range r.addresses { // each node forwards the port by itself, and each feed server learns by itself what there is
		for _, path := range readPaths {
			if err := r.waitFor(ctx, address+path); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitFor asks until it is answered as often in turn as there may be feed servers behind an address.
func (r *readers) waitFor(ctx context.Context, url string) error {
	return await(ctx, func() error {
		for range stormServers {
			if err := r.get(ctx, url); err != nil {
				return fmt.Errorf("cannot read %s: %w", url, err)
			}
		}
		return nil
	})
}

// statusError is an answer other than 200.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("its status is %d", int(e)) }

// get reads an answer to its end.
func (r *readers) get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := r.client.Do(request)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return statusError(resp.StatusCode)
	}
	return nil
}

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
	err := r.get(ctx, url)
	var status statusError
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err == nil:
		r.counts.answered++
	case errors.As(err, &status) && status == http.StatusTooManyRequests:
		r.counts.refused++
	default:
		r.counts.failed++
	}
}

// take returns the counts since it was called before.
func (r *readers) take() counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	counted := r.counts
	counted.took, r.since, r.counts = time.Since(r.since), time.Now(), counts{}
	return counted
}
