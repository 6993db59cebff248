// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"
)

// manner is how a crowd asks: each client for any of the paths at any of the bases, again and again.
type manner struct {
	clients      int
	bases, paths []string
	// agent is the User-Agent of the clients; empty: the library's.
	agent string
	// forwarded: requests say that each client has an address of its own.
	forwarded bool
	// pause comes before the next request, which is over a new connection then; 0: requests follow each other over one.
	pause time.Duration
	// later is the status that may ask clients to come again after at least so many seconds. They come again after patience.
	later, seconds int
	patience       time.Duration
}

// crowd are clients that read.
type crowd struct {
	manner
	stop func()

	mu       sync.Mutex
	answers  map[int]int
	problems []string
}

// startCrowd has clients ask until the crowd is stopped, or the test ends.
func startCrowd(t *testing.T, m manner) *crowd {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	c := &crowd{manner: m, answers: map[int]int{}, stop: func() { cancel(); all.Wait() }}
	t.Cleanup(c.stop)
	for n := range c.clients {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: c.pause > 0}, Timeout: patience}
		all.Go(func() {
			for ctx.Err() == nil {
				c.ask(ctx, client, n)
				time.Sleep(c.pause)
			}
		})
	}
	return c
}

// ask asks once, as the n-th client.
func (c *crowd) ask(ctx context.Context, client *http.Client, n int) {
	url := c.bases[rand.N(len(c.bases))] + c.paths[rand.N(len(c.paths))]
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		c.note(0, err.Error())
		return
	}
	if c.agent != "" {
		request.Header.Set("User-Agent", c.agent)
	}
	if c.forwarded {
		request.Header.Set("X-Forwarded-For", fmt.Sprintf("198.51.100.%d", n+1))
	}
	resp, err := client.Do(request)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		c.note(0, err.Error())
	case resp.StatusCode == c.later && retryAfter(resp) >= c.seconds:
		c.note(resp.StatusCode, "")
		time.Sleep(c.patience)
	case resp.StatusCode != http.StatusOK:
		c.note(resp.StatusCode, url+": "+resp.Status)
	default:
		c.note(resp.StatusCode, "")
	}
}

// retryAfter is after how many seconds to come again; 0: nothing is said.
func retryAfter(resp *http.Response) int {
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return seconds
}

func (c *crowd) note(status int, problem string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[status]++
	if problem != "" {
		c.problems = append(c.problems, problem)
	}
}

// answered is nil once so many answers had a status.
func (c *crowd) answered(status, n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers[status] < n {
		return fmt.Errorf("answers by status are %v, want %d of %d: %v", c.answers, n, status, c.problems)
	}
	return nil
}

// end stops the clients, and fails the test if one received an unexpected answer.
func (c *crowd) end(t *testing.T) {
	t.Helper()
	c.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	t.Logf("answers by status: %v", c.answers)
	if len(c.problems) > 0 {
		t.Errorf("%d of %v were no answers; the first: %s", len(c.problems), c.answers, c.problems[0])
	}
}
