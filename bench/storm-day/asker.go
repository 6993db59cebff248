// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/substorm/substorm/bench/internal/aurora"
	"github.com/substorm/substorm/bench/internal/report"
)

// environment tells a process that it is the one that asks.
const environment = "SUBSTORM_BENCH_STORM"

const (
	// patience is how long an answer may take.
	patience = 30 * time.Second
	// atOnce bounds the requests that are under way.
	atOnce = 2048
)

// order is a part of a day, calm or not.
type order struct {
	Base   string
	During time.Duration
	Day    aurora.Day
}

// answer is what was seen.
type answer struct {
	People, Robots outcome
	// LateP99 is how late requests were sent, in milliseconds.
	LateP99 float64
}

func (a answer) errors() int { return a.People.failed() + a.People.Limited + a.Robots.failed() }

// outcome is what a class of clients saw. Limited were answered 429.
type outcome struct {
	Requests, Limited int
	Bytes             int64
	Failed            map[string]int
	// Milliseconds.
	P50, P99 float64
}

func (o outcome) failed() int {
	n := 0
	for _, count := range o.Failed {
		n += count
	}
	return n
}

// asker sends requests when they are due, whatever became of those before.
type asker struct {
	client *http.Client
	base   string

	mu     sync.Mutex
	people tally
	robots tally
	late   []time.Duration
}

// tally gathers an outcome.
type tally struct {
	outcome
	times []time.Duration
}

// replay carries out an order.
func replay(o order) answer {
	transport := &http.Transport{MaxIdleConnsPerHost: atOnce, DisableCompression: true}
	defer transport.CloseIdleConnections()
	a := &asker{client: &http.Client{Transport: transport, Timeout: patience}, base: o.Base}
	begin := time.Now()
	t := aurora.New(o.Day, begin.UTC().Format(http.TimeFormat))
	var all sync.WaitGroup
	space := make(chan struct{}, atOnce)
	for due := begin; ; {
		due = due.Add(time.Duration(t.Pause() * float64(time.Second)))
		if due.Sub(begin) > o.During {
			break
		}
		r, k, address := t.Next()
		time.Sleep(time.Until(due))
		space <- struct{}{}
		all.Go(func() {
			defer func() { <-space }()
			a.ask(r, k, address, due)
		})
	}
	all.Wait()
	return answer{People: a.people.sum(), Robots: a.robots.sum(), LateP99: report.Percentile(a.late, 0.99)}
}

func (a *asker) ask(r aurora.Request, k *aurora.Kind, address string, due time.Time) {
	late := time.Since(due)
	status, n, err := a.do(r, address)
	took := time.Since(due)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.late = append(a.late, late)
	t := &a.robots
	if k.People {
		t = &a.people
	}
	t.Requests++
	t.Bytes += n
	t.times = append(t.times, took)
	if t.Failed == nil {
		t.Failed = map[string]int{}
	}
	switch {
	case err != nil:
		t.Failed[fmt.Sprintf("%s: %v", k.Name, report.Cause(err))]++
	case status == http.StatusTooManyRequests:
		t.Limited++
	case !slices.Contains(r.Want, status):
		t.Failed[fmt.Sprintf("%s: status %d", k.Name, status)]++
	}
}

func (a *asker) do(r aurora.Request, address string) (status int, bytes int64, err error) {
	asked, err := r.To(a.base, address)
	if err != nil {
		return 0, 0, err
	}
	resp, err := a.client.Do(asked)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	bytes, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, bytes, err
}

func (t *tally) sum() outcome {
	t.P50, t.P99 = report.Percentile(t.times, 0.5), report.Percentile(t.times, 0.99)
	return t.outcome
}
