// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"fmt"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/internal/wire"
)

// narrowing says which objects are meant by what the archive knows of them, beside their paths.
type narrowing struct {
	received, observed, from, match string

	receivedIn, observedIn interval
	source                 netip.Prefix
}

func (n *narrowing) add(f *pflag.FlagSet) {
	f.StringVar(&n.received, "received", "", "objects received in this interval `A..B`, in UTC: 2026-11-28T06:32:20..2026-11-28T06:32:30; "+
		"either end may be left out, and an end holds its whole second, minute or day")
	f.StringVar(&n.observed, "observed", "", "objects whose observation begins in this interval `A..B`")
	f.StringVar(&n.from, "from", "", "objects that came from this `ADDRESS`, or network: 192.0.2.7 or 192.0.2.0/24; no datagrams, whose segments name no sender")
	f.StringVar(&n.match, "match", "", "objects whose file name matches this `GLOB`, or whose whole path where the pattern has a slash: '*.blk'")
}

// isSet says whether anything was said.
func (n *narrowing) isSet() bool { return n.received+n.observed+n.from+n.match != "" }

// parse reads what the flags say.
func (n *narrowing) parse() (err error) {
	if n.receivedIn, err = parseInterval("--received", n.received); err != nil {
		return err
	}
	if n.observedIn, err = parseInterval("--observed", n.observed); err != nil {
		return err
	}
	if n.from != "" {
		if n.source, err = parseNetwork(n.from); err != nil {
			return err
		}
	}
	if _, err := path.Match(n.match, "x"); err != nil {
		return usage.Errorf("--match %q is not a pattern, such as '*.blk'", n.match)
	}
	return nil
}

func parseNetwork(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	network, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, usage.Errorf("--from %q is neither an address nor a network, as 192.0.2.7 and 192.0.2.0/24 are", text)
	}
	if is4In6 := network.Addr().Is4In6(); is4In6 && network.Bits() >= mappedBits {
		network = netip.PrefixFrom(network.Addr().Unmap(), network.Bits()-mappedBits)
	} else if is4In6 {
		return netip.Prefix{}, usage.Errorf("--from %q is larger than all of IPv4: 0.0.0.0/0 matches all its addresses", text)
	}
	return network.Masked(), nil
}

// mappedBits is how long the beginning of an address of IPv6 is that stands for one of IPv4 (::ffff:0:0/96).
const mappedBits = 96

// holds says whether a record is meant.
func (n *narrowing) holds(r *wire.Record) bool {
	if n.received != "" && !n.receivedIn.holds(r.ReceivedAt) {
		return false
	}
	if n.observed != "" && (r.ObservedFrom == nil || !n.observedIn.holds(*r.ObservedFrom)) {
		return false
	}
	if n.from != "" {
		source, err := netip.ParseAddrPort(r.Source)
		if err != nil || !n.source.Contains(source.Addr().Unmap().WithZone("")) {
			return false
		}
	}
	return n.match == "" || n.matches(r.Published()) || r.Name != "" && n.matches(r.Name)
}

func (n *narrowing) matches(name string) bool {
	if !strings.Contains(n.match, "/") {
		name = path.Base(name)
	}
	matched, err := path.Match(n.match, name)
	return matched && err == nil
}

// narrowDays narrows a selection to the days in which something can have been received that is meant.
func (n *narrowing) narrowDays(s *selection) {
	if n.received == "" || s.day != "" || s.since != "" || s.until != "" {
		return
	}
	if !n.receivedIn.from.IsZero() {
		s.since = string(wire.DayOf(n.receivedIn.from))
	}
	if !n.receivedIn.before.IsZero() {
		s.until = string(wire.DayOf(n.receivedIn.before.Add(-1)))
	}
}

// String repeats what was said.
func (n *narrowing) String() string {
	var all []string
	for _, flag := range [][2]string{{"--received", n.received}, {"--observed", n.observed}, {"--from", n.from}, {"--match", n.match}} {
		if flag[1] != "" {
			all = append(all, flag[0]+" "+flag[1])
		}
	}
	return strings.Join(all, " ")
}

// interval of time: from an instant, until before another; zero ends are open.
type interval struct{ from, before time.Time }

func (i interval) holds(at time.Time) bool {
	return (i.from.IsZero() || !at.Before(i.from)) && (i.before.IsZero() || at.Before(i.before))
}

// instants are the ways to write one, and how long each lasts.
var instants = []struct {
	layout string
	lasts  time.Duration
}{
	{"2006-01-02", 24 * time.Hour}, {"2006-01-02T15:04", time.Minute}, {"2006-01-02T15:04:05", time.Second}, {"2006-01-02T15:04:05.999999999", time.Nanosecond},
}

func parseInterval(flag, text string) (interval, error) {
	if text == "" {
		return interval{}, nil
	}
	first, last, ok := strings.Cut(text, "..")
	if !ok {
		last = first
	}
	var i interval
	var err error
	if first != "" {
		if i.from, _, err = parseInstant(first); err != nil {
			return i, intervalError(flag, text)
		}
	}
	if last != "" {
		begins, lasts, err := parseInstant(last)
		if err != nil {
			return i, intervalError(flag, text)
		}
		i.before = begins.Add(lasts)
	}
	switch {
	case first == "" && last == "":
		return i, intervalError(flag, text)
	case first != "" && last != "" && !i.from.Before(i.before):
		return i, usage.Errorf("%s %s: it ends before it begins", flag, text)
	}
	return i, nil
}

func intervalError(flag, text string) error {
	return usage.Errorf("%s %q is not an interval in UTC, such as 2026-11-28T06:32:20..2026-11-28T06:32:30, 2026-11-28T06:32..2026-11-28T07:00, 2026-11-28.. or 2026-11-28", flag, text)
}

func parseInstant(text string) (at time.Time, lasts time.Duration, err error) {
	text = strings.Replace(strings.TrimSuffix(strings.TrimSpace(text), "Z"), " ", "T", 1)
	for _, form := range instants {
		if at, err = time.Parse(form.layout, text); err == nil {
			return at, form.lasts, nil
		}
	}
	return at, 0, fmt.Errorf("%q is not a time", text)
}
