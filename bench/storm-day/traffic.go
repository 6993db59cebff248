// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"

	"github.com/substorm/substorm/bench/internal/web"
)

// The study's day (tables 2, 4 and 5).
const (
	// perSecond requests, of all.
	perSecond = 1_529_984. / 86_400
	// addresses of a day.
	addresses = 4_000
	// Slopes of frequency over rank.
	addressSlope, urlSlope = 1.88, 1.23
	wget                   = "Wget/1.11.4"
	otherWget              = "Wget/1.12 (linux-gnu)"
)

// kind is what is asked for, by whom. Share is its part of all requests, in percent.
type kind struct {
	name   string
	share  float64
	people bool
	make   func(t *traffic) request
}

// request is one of them.
type request struct {
	method, path, agent string
	header, value       string
	// want are the statuses of answers that are right.
	want []int
}

// kinds are the day. Robot A makes nearly all HEADs and asks for most pages; live pages 1
// and 2 and a quarter of other clients ask for the hottest URL.
var kinds = []kind{
	{"robot A: HEAD of a file", 11.6, false, func(t *traffic) request {
		return request{method: http.MethodHead, path: t.any(t.order.Files), agent: wget, want: ok}
	}},
	{"robot A: page of a folder", 36.8, false, func(t *traffic) request {
		return request{method: http.MethodGet, path: t.any(t.order.Pages), agent: wget, want: ok}
	}},
	{"robot A: file", 1.0, false, func(t *traffic) request {
		return request{method: http.MethodGet, path: t.any(t.order.Files), agent: wget, want: ok}
	}},
	{"robot B: large file", 1.1, false, func(t *traffic) request {
		return request{method: http.MethodGet, path: t.any(t.order.Films[films1:]), agent: otherWget, want: ok}
	}},
	{"live image, busted", 18.0, true, func(t *traffic) request {
		return request{method: http.MethodGet, path: fmt.Sprintf("/latest/%s?t=%d", live, t.random.Uint64()), agent: web.Agent, want: ok}
	}},
	{"image again", 1.99, true, func(t *traffic) request {
		return request{method: http.MethodGet, path: t.hot(), agent: web.Agent, header: "If-Modified-Since", value: t.now, want: []int{http.StatusNotModified}}
	}},
	{"part of an image", 0.14, true, func(t *traffic) request {
		return request{method: http.MethodGet, path: t.hot(), agent: web.Agent, header: "Range", value: "bytes=1000-20999", want: []int{http.StatusPartialContent}}
	}},
	{"nothing", 0.44, true, func(t *traffic) request {
		return request{method: http.MethodGet, path: "/archive/" + old + "/nothing.jpg", agent: web.Agent, want: []int{http.StatusNotFound}}
	}},
	{"film", 1.0, true, func(t *traffic) request {
		return request{method: http.MethodGet, path: t.any(t.order.Films[:films1]), agent: web.Agent, want: ok}
	}},
	{"image", 27.93, true, func(t *traffic) request {
		return request{method: http.MethodGet, path: t.hot(), agent: web.Agent, want: ok}
	}},
}

var ok = []int{http.StatusOK}

// traffic makes requests.
type traffic struct {
	order   order
	random  *rand.Rand
	clients *rand.Zipf
	urls    *rand.Zipf
	now     string
	// until are the sums of shares, people's as many times as there are more.
	until []float64
}

func newTraffic(o order, now string) *traffic {
	random := rand.New(rand.NewPCG(o.Seed, 2015))
	t := &traffic{
		order: o, random: random, now: now, clients: rand.NewZipf(random, addressSlope, 1, uint64(addresses*o.Addresses-1)),
		urls: rand.NewZipf(random, urlSlope, 1, uint64(len(o.Files)-1)),
	}
	sum := 0.
	for _, k := range kinds {
		share := k.share
		if k.people {
			share *= float64(o.Gets)
		}
		sum += share
		t.until = append(t.until, sum)
	}
	return t
}

// rate is how many requests there are in a second.
func (t *traffic) rate() float64 {
	return perSecond * t.until[len(t.until)-1] / 100 * float64(t.order.Speed)
}

func (t *traffic) any(paths []string) string { return paths[t.random.IntN(len(paths))] }

// hot is a file as people ask for them: the newest most.
func (t *traffic) hot() string { return t.order.Files[len(t.order.Files)-1-int(t.urls.Uint64())] }

// next returns a request, its kind, and the address that makes it.
func (t *traffic) next() (request, *kind, string) {
	at := t.random.Float64() * t.until[len(t.until)-1]
	i := 0
	for at > t.until[i] {
		i++
	}
	k := &kinds[i]
	// There are so many of each client as the day goes faster, and each asks as often as then.
	copies := uint64(t.random.IntN(t.order.Speed))
	client := copies
	network := 10
	if k.people {
		client += t.clients.Uint64() * uint64(t.order.Speed)
		network = 11
	}
	return k.make(t), k, fmt.Sprintf("%d.%d.%d.%d", network, client>>16&255, client>>8&255, client&255)
}
