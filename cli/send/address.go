// SPDX-License-Identifier: Apache-2.0

package send

import (
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/substorm/substorm/cli/usage"
)

// maxAddresses bounds what a command line may name.
const maxAddresses = 4096

// ParseAddresses reads what --to takes: host:port or host:first-last, several
// separated by commas. It returns every single host:port, in order.
func ParseAddresses(specs []string) ([]string, error) {
	var all []string
	for _, spec := range specs {
		for one := range strings.SplitSeq(spec, ",") {
			host, first, last, err := parseAddress(strings.TrimSpace(one))
			if err != nil {
				return nil, err
			}
			if len(all)+last-first >= maxAddresses {
				return nil, usage.Errorf("--to names more than %d addresses", maxAddresses)
			}
			for port := first; port <= last; port++ {
				all = append(all, net.JoinHostPort(host, strconv.Itoa(port)))
			}
		}
	}
	if len(all) == 0 {
		return nil, usage.Errorf("--to names no server: give host:port, as in --to gateway.example:30101")
	}
	return all, nil
}

func parseAddress(spec string) (host string, first, last int, err error) {
	host, ports, err := net.SplitHostPort(spec)
	if err != nil || host == "" {
		return "", 0, 0, usage.Errorf("server %q is not host:port or host:first-last", spec)
	}
	low, high, isRange := strings.Cut(ports, "-")
	if !isRange {
		high = low
	}
	if first, err = parsePort(low); err == nil {
		last, err = parsePort(high)
	}
	if err != nil || first > last {
		return "", 0, 0, usage.Errorf("server %q: a port is a number from 1 to 65535, a range first-last", spec)
	}
	return host, first, last, nil
}

func parsePort(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err == nil && n == 0 {
		err = strconv.ErrRange
	}
	return int(n), err
}

// roster knows which addresses answered and which to try next. It spreads
// objects over the addresses that work and comes back to the others after a
// pause that grows from one second to thirty, a little of it by chance: senders
// that lost a server together do not come back to it together.
type roster struct {
	mu    sync.Mutex
	addrs []rosterEntry
	next  int
	now   func() time.Time
}

type rosterEntry struct {
	address  string
	failures int
	retryAt  time.Time
}

func newRoster(addresses []string) *roster {
	r := &roster{next: rand.IntN(len(addresses)), now: time.Now}
	for _, a := range addresses {
		r.addrs = append(r.addrs, rosterEntry{address: a})
	}
	return r
}

// pick returns an address that is not in tried: one that works, else the one
// whose pause ends first. It returns false once all were tried.
func (r *roster) pick(tried []string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, best := r.now(), -1
	for i := range r.addrs {
		k := (r.next + i) % len(r.addrs)
		e := &r.addrs[k]
		if slices.Contains(tried, e.address) {
			continue
		}
		if !e.retryAt.After(now) {
			best = k
			break
		}
		if best < 0 || e.retryAt.Before(r.addrs[best].retryAt) {
			best = k
		}
	}
	if best < 0 {
		return "", false
	}
	r.next = (best + 1) % len(r.addrs)
	return r.addrs[best].address, true
}

// worked says that the address answered.
func (r *roster) worked(address string) { r.note(address, false) }

// failed says that the address did not answer, or not with a receipt.
func (r *roster) failed(address string) { r.note(address, true) }

func (r *roster) note(address string, failure bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.addrs {
		e := &r.addrs[i]
		if e.address != address {
			continue
		}
		if !failure {
			e.failures, e.retryAt = 0, time.Time{}
			return
		}
		pause := min(time.Second<<min(e.failures, 5), 30*time.Second)
		e.retryAt = r.now().Add(pause - rand.N(pause/4))
		e.failures++
	}
}
