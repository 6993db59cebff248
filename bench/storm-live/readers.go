// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/substorm/substorm/bench/internal/aurora"
	"github.com/substorm/substorm/bench/internal/report"
)

// readersEnvironment tells a process that it is the one that asks feed servers.
const readersEnvironment = "SUBSTORM_BENCH_STORM_LIVE_READERS"

const (
	// readerPatience is how long an answer may take. A reader that waits longer has gone.
	readerPatience = 10 * time.Second
	// readersAtOnce bounds requests that are under way. A crowd does not wait for others to be served: what would be more is not sent.
	readersAtOnce = 4096
)

// asking are what feed servers are asked for, from a time on.
type asking struct {
	Pods  pods
	Begin time.Time
	Day   aurora.Day
	Parts []part
}

// answered is what came of it.
type answered struct {
	Parts []answeredPart
	Error string
}

// answeredPart is the result of a part. Cores of a processor are what asking took.
type answeredPart struct {
	People, Robots answers
	Cores, LateP99 float64
}

// readers ask when requests are due, whatever became of those before.
type readers struct {
	pods   *targets
	client *http.Client
	space  chan struct{}
	all    sync.WaitGroup
}

// ask carries out an order to a worker.
func ask(o asking) answered {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	found, err := o.Pods.follow(ctx)
	if err != nil {
		return answered{Error: err.Error()}
	}
	transport := &http.Transport{MaxIdleConnsPerHost: readersAtOnce, DisableCompression: true}
	defer transport.CloseIdleConnections()
	v := &readers{pods: found, client: &http.Client{Transport: transport, Timeout: readerPatience}, space: make(chan struct{}, readersAtOnce)}
	tallies := make([]*tally, len(o.Parts))
	cores := inTurn(o.Begin, o.Parts, func(i int, p part, begin time.Time) {
		day := o.Day
		day.People, day.Addresses, day.Seed = aurora.PeopleFor(p.Times), p.Addresses, o.Day.Seed*uint64(len(o.Parts))+uint64(i)
		tallies[i] = &tally{}
		v.during(begin, p.For, day, tallies[i])
	})
	v.all.Wait()
	var out answered
	for i, t := range tallies {
		out.Parts = append(out.Parts, answeredPart{t.people.sum(), t.robots.sum(), cores[i], report.Percentile(t.late, 0.99)})
	}
	return out
}

// during asks for what a part has.
func (v *readers) during(begin time.Time, part time.Duration, day aurora.Day, t *tally) {
	traffic := aurora.New(day, begin.UTC().Format(http.TimeFormat))
	for due := begin; ; {
		due = due.Add(time.Duration(traffic.Pause() * float64(time.Second)))
		if due.Sub(begin) > part {
			return
		}
		r, k, address := traffic.Next()
		time.Sleep(time.Until(due))
		select {
		case v.space <- struct{}{}:
		default:
			t.unsent(k)
			continue
		}
		v.all.Go(func() {
			defer func() { <-v.space }()
			late := time.Since(due)
			got, err := v.ask(r, address)
			t.add(r, k, got, err, late, time.Since(due))
		})
	}
}

// got is an answer.
type got struct {
	status int
	// later: it says when to come again.
	later bool
	bytes int64
}

func (v *readers) ask(r aurora.Request, address string) (got, error) {
	host, err := v.pods.pick()
	if err != nil {
		return got{}, err
	}
	asked, err := r.To("http://"+host, address)
	if err != nil {
		return got{}, err
	}
	do := v.client.Do
	if r.OldHTTP {
		do = byOldHTTP
	}
	resp, err := do(asked)
	if err != nil {
		return got{}, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	return got{resp.StatusCode, resp.Header.Get("Retry-After") != "", n}, err
}

// byOldHTTP sends a request as HTTP/1.0 does, which the standard library's client does not support.
func byOldHTTP(asked *http.Request) (*http.Response, error) {
	conn, err := net.DialTimeout("tcp", asked.URL.Host, readerPatience)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(readerPatience)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	head := fmt.Sprintf("%s %s HTTP/1.0\r\nHost: %s\r\n", asked.Method, asked.URL.RequestURI(), asked.URL.Host)
	for name, values := range asked.Header {
		head += name + ": " + values[0] + "\r\n"
	}
	if _, err := io.WriteString(conn, head+"\r\n"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), asked)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	resp.Body = closing{resp.Body, conn}
	return resp, nil
}

// closing closes the connection with the body.
type closing struct {
	io.ReadCloser
	conn net.Conn
}

func (c closing) Close() error { return errors.Join(c.ReadCloser.Close(), c.conn.Close()) }

// tally gathers what came of a part.
type tally struct {
	mu             sync.Mutex
	people, robots answers
	late           []time.Duration
}

func (t *tally) of(k *aurora.Kind) *answers {
	if k.People {
		return &t.people
	}
	return &t.robots
}

func (t *tally) unsent(k *aurora.Kind) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.of(k)
	a.All++
	a.Unsent++
}

func (t *tally) add(r aurora.Request, k *aurora.Kind, is got, err error, late, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.late = append(t.late, late)
	a := t.of(k)
	a.All++
	a.Bytes += is.bytes
	switch {
	case err != nil:
		a.fail("%s: %v", k.Name, report.Cause(err))
	case is.status == http.StatusTooManyRequests && is.later:
		a.Limited++
	case is.status == http.StatusServiceUnavailable && is.later:
		a.GaveWay++
	case !slices.Contains(r.Want, is.status):
		a.fail("%s: status %d", k.Name, is.status)
	default:
		a.times = append(a.times, took)
	}
}
