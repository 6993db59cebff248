// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"net/http"
	"net/netip"
	"sync"

	"github.com/substorm/substorm/internal/problem"
)

const (
	// readersShare is the part of all places, turns and waiting requests that is kept for clients
	// with a valid token or certificate: one of so many, at least one.
	readersShare = 4
	// addressShare is the part of the others that one address may hold.
	addressShare = 8
	// leastPerAddress is what one address may hold if its share is smaller: a browser opens six
	// connections, and several people share an address.
	leastPerAddress = 16
)

// Places bound how many of something are held at a time. A part is kept for authenticated readers. Each address has a part
// of the rest, and each network of 48 bits half: anonymous clients, however many, keep no reader out, and one address keeps
// no other client out.
type Places struct {
	full func(held int) *problem.Problem

	mu sync.Mutex
	// most of all places, of the places of anonymous clients together, of each of their addresses, and of each of their
	// networks of 48 bits.
	most, anonymous, address, network int

	held        int
	anonymously int
	// entered and lacked are how many found a place since the start, and how many did not for want of one.
	entered, lacked uint64
	// of counts by address, and ofNetwork by network.
	of, ofNetwork map[netip.Addr]int
}

// NewPlaces returns so many; 0: any number. Full says why there are no more.
func NewPlaces(most int, full func(held int) *problem.Problem) *Places {
	p := &Places{full: full, of: map[netip.Addr]int{}, ofNetwork: map[netip.Addr]int{}}
	p.Bound(most)
	return p
}

// podFull is for what the pod's memory bounds.
func podFull(held int) *problem.Problem {
	return problem.New(http.StatusServiceUnavailable, "%d connections are open here, as many as this replica has memory for: "+
		"another may have space, see spec.podTemplate.resources of the FeedServer", held).After(RetryAway)
}

// counts are entered and lacked.
func (p *Places) counts() (entered, lacked uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.entered, p.lacked
}

// Bound changes how many there are. A request that holds one keeps it.
func (p *Places) Bound(most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most, p.anonymous, p.address, p.network = most, 0, 0, 0
	if most > 0 {
		p.anonymous = most - reserved(most)
		p.address = min(p.anonymous, max(leastPerAddress, p.anonymous/addressShare))
		p.network = max(p.address, p.anonymous/2)
	}
}

// reserved is how many of all are kept for readers. If there is only one, it is not kept.
func reserved(most int) int {
	if most < 2 {
		return 0
	}
	return max(1, most/readersShare)
}

// Fill is the part that is taken of the places for anonymous clients, or of all places, whichever is more; 0 if the number is not
// bounded.
func (p *Places) Fill() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.most <= 0 {
		return 0
	}
	return p.fill(true)
}

// fill is the part that is taken of the places that a client may have; the lock is held, and there is a
// bound.
func (p *Places) fill(anonymous bool) float64 {
	taken := float64(p.held) / float64(p.most)
	if !anonymous {
		return taken
	}
	return max(taken, float64(p.anonymously)/float64(p.anonymous))
}

// Enter takes a place for the client from an address, which leave gives back. The problem says why
// there is none.
func (p *Places) Enter(address netip.Addr, who Identity) (leave func(), refused *problem.Problem) {
	leave, refused, _ = p.EnterBelow(1, address, who)
	return leave, refused
}

// EnterBelow is Enter while less than a part is taken of the places that the client may have. Otherwise the request gives way: it
// returns neither a place nor a problem.
func (p *Places) EnterBelow(part float64, address netip.Addr, who Identity) (leave func(), refused *problem.Problem, givesWay bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	anonymous := who.Reader.Anonymous()
	if p.most > 0 && part < 1 && p.fill(anonymous) >= part {
		return nil, nil, true
	}
	if p.most > 0 {
		if refused := p.refuse(address, anonymous); refused != nil {
			if refused.Status == http.StatusServiceUnavailable { // else the address has as many as one may have
				p.lacked++
			}
			return nil, refused, false
		}
	}
	p.held++
	p.entered++
	if !anonymous {
		return sync.OnceFunc(func() { p.leave() }), nil, false
	}
	p.anonymously++
	p.of[address]++
	p.ofNetwork[network48(address)]++
	return sync.OnceFunc(func() { p.leaveAnonymously(address) }), nil, false
}

func (p *Places) refuse(address netip.Addr, anonymous bool) *problem.Problem {
	switch {
	case p.held >= p.most:
		return p.full(p.held)
	case anonymous && p.of[address] >= p.address:
		return problem.New(http.StatusTooManyRequests, "%d connections from your address are open here, as many as one address may have without a token: "+
			"close some, or show a token", p.address).After(RetryAway)
	case anonymous && p.ofNetwork[network48(address)] >= p.network:
		return problem.New(http.StatusTooManyRequests, "%d connections from your network are open here, as many as one of 48 bits may have without a token: "+
			"close some, or show a token", p.network).After(RetryAway)
	case anonymous && p.anonymously >= p.anonymous:
		return problem.New(http.StatusServiceUnavailable, "%d connections are open here without a token, and the rest of %d is kept for readers: "+
			"show a token, or ask again", p.anonymously, p.most).After(RetryAway)
	default:
		return nil
	}
}

func (p *Places) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held--
}

func (p *Places) leaveAnonymously(address netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held--
	p.anonymously--
	if p.of[address]--; p.of[address] == 0 {
		delete(p.of, address)
	}
	if network := network48(address); p.ofNetwork[network] == 1 {
		delete(p.ofNetwork, network)
	} else {
		p.ofNetwork[network]--
	}
}
