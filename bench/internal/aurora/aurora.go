// SPDX-License-Identifier: Apache-2.0

// Package aurora makes the requests of the Aurora study's day, its robots among them, and of its storm, and fills the archive that they ask for.
package aurora

import (
	"fmt"
	"math/rand/v2"
	"net/http"

	"github.com/substorm/substorm/bench/internal/web"
)

// The study's day (tables 2, 4 and 5).
const (
	// PerSecond requests, of all.
	PerSecond = 1_529_984. / 86_400
	// addresses of a day.
	addresses = 4_000
	// Slopes of frequency over rank.
	addressSlope, urlSlope = 1.88, 1.23
	wget                   = "Wget/1.11.4"
	otherWget              = "Wget/1.12 (linux-gnu)"
)

// The storm (section "Storm" of the study): so many times as many GETs, from so many times as many addresses.
const (
	StormGets      = 4
	StormAddresses = 8
)

// Day is what is asked for, and how much of it.
type Day struct {
	// Speed is how many times as fast as in the study the day goes.
	Speed int
	// People ask so many times as often as on a calm day, from so many times as many Addresses.
	People    float64
	Addresses int
	// Paths of URLs: files, pages of folders, films, and what the second robot fetches.
	Files, Pages, Films, Bulk []string
	Seed                      uint64
}

// Kind is what is asked for, by whom.
type Kind struct {
	Name string
	// People or a robot.
	People bool
	// share of all requests of a calm day, in percent.
	share float64
	make  func(t *Traffic) Request
}

// Request is one of them.
type Request struct {
	Method, Path, Agent string
	Header, Value       string
	// OldHTTP: by HTTP/1.0, over a connection of its own.
	OldHTTP bool
	// Want are the statuses of answers that are right.
	Want []int
}

// To makes the request of a client at an address, as a proxy passes it on to a server: base is http://host:port.
func (r Request) To(base, address string) (*http.Request, error) {
	asked, err := http.NewRequest(r.Method, base+r.Path, nil)
	if err != nil {
		return nil, err
	}
	asked.Header.Set("User-Agent", r.Agent)
	asked.Header.Set("X-Forwarded-For", address)
	if r.Header != "" {
		asked.Header.Set(r.Header, r.Value)
	}
	return asked, nil
}

// kinds are the day. Robot A makes nearly all HEADs and asks for most pages; live pages 1
// and 2 and a quarter of other clients ask for the hottest URL.
var kinds = []Kind{
	{"robot A: HEAD of a file", false, 11.6, func(t *Traffic) Request {
		return Request{Method: http.MethodHead, Path: t.any(t.day.Files), Agent: wget, OldHTTP: true, Want: ok}
	}},
	{"robot A: page of a folder", false, 36.8, func(t *Traffic) Request {
		return Request{Method: http.MethodGet, Path: t.any(t.day.Pages), Agent: wget, OldHTTP: true, Want: ok}
	}},
	{"robot A: file", false, 1.0, func(t *Traffic) Request {
		return Request{Method: http.MethodGet, Path: t.any(t.day.Files), Agent: wget, OldHTTP: true, Want: ok}
	}},
	{"robot B: large file", false, 1.1, func(t *Traffic) Request {
		return Request{Method: http.MethodGet, Path: t.any(t.day.Bulk), Agent: otherWget, Want: ok}
	}},
	{"live image, busted", true, 18.0, func(t *Traffic) Request {
		return Request{Method: http.MethodGet, Path: fmt.Sprintf("/latest/%s?t=%d", Live, t.random.Uint64()), Agent: web.Agent, Want: ok}
	}},
	{"image again", true, 1.99, func(t *Traffic) Request {
		return Request{Method: http.MethodGet, Path: t.hot(), Agent: web.Agent, Header: "If-Modified-Since", Value: t.now, Want: []int{http.StatusNotModified}}
	}},
	{"part of an image", true, 0.14, func(t *Traffic) Request {
		return Request{Method: http.MethodGet, Path: t.hot(), Agent: web.Agent, Header: "Range", Value: "bytes=1000-20999", Want: []int{http.StatusPartialContent}}
	}},
	{"nothing", true, 0.44, func(t *Traffic) Request {
		return Request{Method: http.MethodGet, Path: "/archive/" + Old + "/nothing.jpg", Agent: web.Agent, Want: []int{http.StatusNotFound}}
	}},
	{"film", true, 1.0, func(t *Traffic) Request {
		return Request{Method: http.MethodGet, Path: t.any(t.day.Films), Agent: web.Agent, Want: ok}
	}},
	{"image", true, 27.93, func(t *Traffic) Request {
		return Request{Method: http.MethodGet, Path: t.hot(), Agent: web.Agent, Want: ok}
	}},
}

var ok = []int{http.StatusOK}

// PeopleFor is how many times as often people ask where all ask so many times as often, and robots as always.
func PeopleFor(times float64) float64 {
	people, robots := 0., 0.
	for _, k := range kinds {
		if k.People {
			people += k.share
		} else {
			robots += k.share
		}
	}
	return (times*(people+robots) - robots) / people
}

// Traffic makes requests.
type Traffic struct {
	day     Day
	random  *rand.Rand
	clients *rand.Zipf
	urls    *rand.Zipf
	now     string
	// until are the sums of shares, people's as many times as there are more.
	until []float64
}

// New returns the requests of a day. Now is the time, as HTTP writes it.
func New(day Day, now string) *Traffic {
	random := rand.New(rand.NewPCG(day.Seed, 2015))
	t := &Traffic{
		day: day, random: random, now: now, clients: rand.NewZipf(random, addressSlope, 1, uint64(addresses*day.Addresses-1)),
		urls: rand.NewZipf(random, urlSlope, 1, uint64(len(day.Files)-1)),
	}
	sum := 0.
	for _, k := range kinds {
		share := k.share
		if k.People {
			share *= day.People
		}
		sum += share
		t.until = append(t.until, sum)
	}
	return t
}

// Rate is how many requests there are in a second.
func (t *Traffic) Rate() float64 {
	return PerSecond * t.until[len(t.until)-1] / 100 * float64(t.day.Speed)
}

// Pause is how long until the next request.
func (t *Traffic) Pause() float64 { return t.random.ExpFloat64() / t.Rate() }

func (t *Traffic) any(paths []string) string { return paths[t.random.IntN(len(paths))] }

// hot is a file as people ask for them: the newest most.
func (t *Traffic) hot() string { return t.day.Files[len(t.day.Files)-1-int(t.urls.Uint64())] }

// Next returns a request, its kind, and the address that makes it.
func (t *Traffic) Next() (Request, *Kind, string) {
	at := t.random.Float64() * t.until[len(t.until)-1]
	i := 0
	for at > t.until[i] {
		i++
	}
	k := &kinds[i]
	// There are so many of each client as the day goes faster, and each asks as often as then.
	copies := uint64(t.random.IntN(t.day.Speed))
	client := copies
	network := 12
	if k.People {
		client += t.clients.Uint64() * uint64(t.day.Speed)
		network = 11
	}
	return k.make(t), k, fmt.Sprintf("%d.%d.%d.%d", network, client>>16&255, client>>8&255, client&255)
}
