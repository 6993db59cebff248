// SPDX-License-Identifier: Apache-2.0

package feedserver

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// The server keeps a quarter of so many places for readers. A robot gets one while less than four fifths of the other 240 are taken, which are
	// maxRobots, and a program with a token while less than nine tenths of all are.
	givingWaySockets      = 320
	maxRobots, robotsMore = 192, 2
	maxBulk, bulkMore     = 288 - maxRobots, 8
	// persons have a place each at times, so that others find fewer.
	persons = 6

	browser = "Mozilla/5.0 (X11; Linux x86_64)"
	program = "copy/1.0"
)

// TestGivingWayUnderLoad: robots and then bulk readers ask for more places than there are, and keep what they get, while people read pages.
// Bulk readers find places when robots do not any more, and people find one whenever they ask. Each client that gives way gets a
// Retry-After, and is counted by its rank; the pod reports it. Once places are free, all are served, and the report no longer has it.
func TestGivingWayUnderLoad(t *testing.T) {
	t.Parallel()
	l := newEndpointsLab(t, func(c *Config) { c.MaxSockets, c.GiveWay = givingWaySockets, true })
	l.sendLarge()
	bundle, keep := l.fill("/bundle/open.tar"), []string{"/archive/open/n/" + large}
	l.takesLong(keep[0])

	people := l.crowd(persons, "127.0.12.0", asker{agent: browser, paths: []string{"/", "/archive/open/", "/latest/open", pathOf(open)}})
	robots := l.crowd(maxRobots+robotsMore, "127.0.10.0", asker{agent: program, paths: keep, keeps: true})
	robots.awaits("robots keep what they may", func() bool { return robots.kept >= maxRobots-persons && robots.refused > 20 })
	l.asks(browser, bundle)
	l.awaitsGivingWay(func(g *wire.GivingWay) bool {
		return g != nil && g.Cause == endpoint.CauseRequests && g.Robots < 100 && g.Bulk == 100
	})

	bulk := l.crowd(maxBulk+bulkMore, "127.0.11.0", asker{agent: program, paths: keep, who: outsider, keeps: true})
	bulk.awaits("bulk readers keep what they may", func() bool { return bulk.kept >= maxBulk-persons && bulk.refused > 20 })
	l.awaitsGivingWay(func(g *wire.GivingWay) bool {
		return g != nil && g.Cause == endpoint.CauseRequests && g.Robots < 100 && g.Bulk < 100
	})
	before := 0
	people.awaits("people are served while all others give way", func() bool {
		if before == 0 {
			before = people.served
		}
		return people.served > before+200
	})

	if kept, of := robots.keeps(), bulk.keeps(); kept > maxRobots || of > maxBulk+persons {
		t.Errorf("%d robots and %d bulk readers keep places", kept, of)
	}
	for _, c := range []*crowd{people, robots, bulk} { // requests that still wait are served when the ones before them have gone
		c.end()
	}
	if people.refused > 0 {
		t.Errorf("%d people had to give way", people.refused)
	}
	if is, want := l.gaveWay(), (map[string]int{"Robots": robots.refused, "Bulk": bulk.refused}); !maps.Equal(is, want) {
		t.Errorf("counted are %v, want %v", is, want)
	}
	l.asks(program, pathOf(open))
	l.asks(browser, bundle)
	l.awaitsGivingWay(func(g *wire.GivingWay) bool { return g == nil })
}

// asker asks for some things in turn.
type asker struct {
	agent, who string
	paths      []string
	// keeps: it takes an answer with 200 so slowly that it keeps its place until the end, and as fast as it has to.
	keeps bool
}

// crowd are many that ask from an address each, and what they were answered.
type crowd struct {
	t *testing.T
	// end waits for the answers of all.
	end func()

	mu                    sync.Mutex
	served, kept, refused int
}

func (l *endpointsLab) crowd(n int, network string, a asker) *crowd {
	over := make(chan struct{})
	var all sync.WaitGroup
	c := &crowd{t: l.t, end: sync.OnceFunc(func() { close(over); all.Wait() })}
	l.t.Cleanup(c.end)
	address := netip.MustParseAddr(network)
	for range n {
		address = address.Next()
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: address.AsSlice()}}
		from := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
		all.Go(func() {
			for i := 0; !isOver(over); i++ {
				c.ask(over, l, from, a, a.paths[i%len(a.paths)])
			}
		})
	}
	return c
}

func isOver(over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}

func (c *crowd) ask(over <-chan struct{}, l *endpointsLab, from *http.Client, a asker, path string) {
	status, again, err := l.answer(from, a.agent, a.who, path, func(body io.Reader) error {
		if a.keeps {
			c.note(&c.kept)
			return trickle(over, body)
		}
		c.note(&c.served)
		_, err := io.Copy(io.Discard, body)
		return err
	})
	switch {
	case err != nil:
		c.t.Errorf("%s asks for %s: %v", a.agent, path, err)
	case status == http.StatusServiceUnavailable && again >= 30 && again < 60:
		c.note(&c.refused)
		time.Sleep(50 * time.Millisecond) // much earlier than Retry-After says
	case status != http.StatusOK:
		c.t.Errorf("%s asks for %s: %d with Retry-After %d", a.agent, path, status, again)
	}
}

// trickle reads until it is over. A client has 30 s for 64 KiB.
func trickle(over <-chan struct{}, from io.Reader) error {
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-over:
			tick.Stop()
			return nil
		case <-tick.C:
			if _, err := io.CopyN(io.Discard, from, 8<<10); err != nil {
				return fmt.Errorf("the place was lost: %w", err)
			}
		}
	}
}

// answer asks once. Read is given the body of an answer with 200.
func (l *endpointsLab) answer(from *http.Client, agent, who, path string, read func(io.Reader) error) (status, again int, err error) {
	r, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet, "http://"+l.address()+path, nil)
	if err != nil {
		return 0, 0, err
	}
	r.Header.Set("User-Agent", agent)
	if who != "" {
		r.SetBasicAuth("", who+"-token")
	}
	resp, err := from.Do(r)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	again, _ = strconv.Atoi(resp.Header.Get("Retry-After"))
	if resp.StatusCode == http.StatusOK {
		err = read(resp.Body)
	}
	return resp.StatusCode, again, err
}

// asks asks once, without a token, and is to be served.
func (l *endpointsLab) asks(agent, path string) {
	l.t.Helper()
	status, _, err := l.answer(http.DefaultClient, agent, "", path, func(body io.Reader) error {
		_, err := io.Copy(io.Discard, body)
		return err
	})
	if err != nil || status != http.StatusOK {
		l.t.Errorf("%s asks for %s: %d, %v", agent, path, status, err)
	}
}

func (c *crowd) note(n *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

// keeps is how many have kept a place until now.
func (c *crowd) keeps() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept
}

func (c *crowd) awaits(what string, is func() bool) {
	c.t.Helper()
	look := func() (bool, string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return is(), fmt.Sprintf("%d were served, %d keep a place, and %d had to give way", c.served, c.kept, c.refused)
	}
	told := ""
	for range testenv.Attempts() {
		var ok bool
		if ok, told = look(); ok {
			return
		}
	}
	c.t.Fatalf("%s: %s", what, told)
}

// awaitsGivingWay waits for what the pod reports of it to the operator.
func (l *endpointsLab) awaitsGivingWay(is func(*wire.GivingWay) bool) {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.StatusBucket("hub"))
	if err != nil {
		l.t.Fatal(err)
	}
	var status wire.FeedServerStatus
	for range testenv.Attempts() {
		entry, err := kv.Get(l.t.Context(), wire.FeedServerStatusKey("feed-server-0"))
		if err != nil {
			continue // nothing yet
		}
		if status, err = wire.Decode[wire.FeedServerStatus](entry.Value()); err != nil {
			l.t.Fatal(err)
		}
		if is(status.GivingWay) {
			return
		}
	}
	l.t.Fatalf("the pod reports %+v", status.GivingWay)
}

// gaveWay is how many requests metrics count for each rank that gave way for want of a place.
func (l *endpointsLab) gaveWay() map[string]int {
	l.t.Helper()
	counted := map[string]int{}
	families, err := l.server.metrics.Gather()
	if err != nil {
		l.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "substorm_archive_gave_way_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			of := map[string]string{}
			for _, label := range m.GetLabel() {
				of[label.GetName()] = label.GetValue()
			}
			if of["cause"] != endpoint.CauseRequests {
				l.t.Errorf("some gave way because of %s", of["cause"])
			}
			counted[of["rank"]] += int(m.GetCounter().GetValue())
		}
	}
	return counted
}
