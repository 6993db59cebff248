// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

func TestClassOf(t *testing.T) {
	t.Parallel()
	for agent, want := range map[string]Class{
		"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0":   Person,
		"Mozilla/5.0 (Macintosh) AppleWebKit/605.1.15 Version/18.0 Safari":         Person,
		"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)": Robot,
		"Wget/1.11.4": Robot, "curl/8.5": Robot, "rclone/v1.60": Robot, "Python-urllib/3.12": Robot, "": Robot,
	} {
		if got := ClassOf(&http.Request{Header: http.Header{"User-Agent": {agent}}}); got != want {
			t.Errorf("%q is a %v", agent, got)
		}
	}
}

func TestAddressOf(t *testing.T) {
	t.Parallel()
	proxies := Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, c := range []struct {
		remote    string
		forwarded []string
		want      string
	}{
		{"192.0.2.1:1234", nil, "192.0.2.1"},
		{"192.0.2.1:1234", []string{"203.0.113.9"}, "192.0.2.1"}, // any client can send the header
		{"10.1.1.1:1", []string{"203.0.113.9"}, "203.0.113.9"},
		{"10.1.1.1:1", []string{"198.51.100.1, 203.0.113.9, 10.2.2.2"}, "203.0.113.9"},
		{"10.1.1.1:1", []string{"198.51.100.1", "203.0.113.9"}, "203.0.113.9"},
		{"10.1.1.1:1", []string{"nonsense"}, "10.1.1.1"},
		{"10.1.1.1:1", []string{"nonsense, 203.0.113.9"}, "203.0.113.9"},
		{"10.1.1.1:1", []string{"203.0.113.9:51234"}, "203.0.113.9"}, // as Azure's and IIS's proxies write it
		{"10.1.1.1:1", []string{"203.0.113.9:51234, 10.2.2.2:80"}, "203.0.113.9"},
		{"10.1.1.1:1", []string{"[2001:db8::7]:51234"}, "2001:db8::"},
		{"10.1.1.1:1", []string{"[2001:db8::7]"}, "2001:db8::"},
		{"10.1.1.1:1", []string{"203.0.113.9:"}, "10.1.1.1"},
		{"10.1.1.1:1", nil, "10.1.1.1"},
		{"[::ffff:192.0.2.1]:1", nil, "192.0.2.1"},
		{"[2001:db8:0:1:2:3:4:5]:1", nil, "2001:db8:0:1::"},
		{"[fd00::1]:1", []string{"2001:db8::7"}, "2001:db8::"},
		{"[fe80::1%eth0]:1", nil, "fe80::"},
		{"pipe", nil, "invalid IP"},
	} {
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{"X-Forwarded-For": c.forwarded}}
		if got := proxies.AddressOf(r).String(); got != c.want {
			t.Errorf("%s for %v: %s, want %s", c.remote, c.forwarded, got, c.want)
		}
	}
}

func TestIdentify(t *testing.T) {
	t.Parallel()
	var readers Readers
	hash := func(token string) []wire.TokenHash { return []wire.TokenHash{wire.HashToken([]byte("salt"), token)} }
	first := &registry.Snapshot{Readers: map[string]wire.ReaderEntry{"uni": {Tokens: hash("one")}}, Consumers: map[string]wire.ConsumerEntry{"viewer": {Tokens: hash("two")}}}
	second := &registry.Snapshot{Readers: map[string]wire.ReaderEntry{"uni": {Tokens: hash("two")}}}
	for _, c := range []struct {
		snapshot      *registry.Snapshot
		authorization string
		want          string
		refused       bool
	}{
		{first, "", "", false}, {first, "Bearer one", "uni", false}, {first, "bearer  one ", "uni", false}, {first, "Bearer two", "consumer:viewer", false},
		{first, "Bearer two", "consumer:viewer", false}, {first, "Bearer three", "", true}, {first, "Basic eDp0d28=", "consumer:viewer", false}, {first, "Basic !", "", true}, {first, "Bearer", "", true},
		{second, "Bearer two", "uni", false}, {second, "Bearer one", "", true}, {first, "Bearer one", "uni", false}, // what was known of another registry counts for nothing
	} {
		r := &http.Request{Header: http.Header{}}
		if c.authorization != "" {
			r.Header.Set("Authorization", c.authorization)
		}
		got, p := readers.Identify(c.snapshot, r)
		if got.Reader.String() != c.want || (p != nil) != c.refused {
			t.Errorf("%q: %q, %v", c.authorization, got.Reader, p)
		}
	}
}

// If there are too many clients, the one that asked longest ago is forgotten, and only that.
func TestLimiterForgets(t *testing.T) {
	t.Parallel()
	l := NewLimiter(Limits{Clients: 2, Robot: Rate{PerSecond: 0.001, Burst: 1}, Patience: time.Millisecond}, prometheus.NewRegistry())
	ask := func(host byte) bool {
		return l.Admit(context.Background(), Robot, netip.AddrFrom4([4]byte{192, 0, 2, host}), Identity{}) == nil
	}
	for i, c := range []struct {
		host byte
		want bool
	}{{1, true}, {2, true}, {1, false}, {3, true}, {1, false}, {2, true}, {3, true}} {
		if got := ask(c.host); got != c.want {
			t.Errorf("ask %d, of %d: %v", i, c.host, got)
		}
	}
	uni := Identity{Reader: access.SiteReader("uni")}
	if l.Admit(context.Background(), Robot, netip.Addr{}, uni) != nil || l.Admit(context.Background(), Person, netip.Addr{}, uni) != nil {
		t.Error("another reader, or another class, is another client")
	}
	if n := len(l.clients); n != 2 || l.recent.Len() != 2 {
		t.Errorf("%d clients are known", n)
	}
}

// A tag is in the list that holds it.
func FuzzListed(f *testing.F) {
	for _, seed := range []string{`"a"`, `W/"a"`, `*`, `"b", W/"a"`, `"b"W/"a"`, `"`, `W/`, `,,"a"`, `a`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		weak, strong := Listed(list, `"a"`, true), Listed(list, `"a"`, false)
		if strong && !weak {
			t.Fatalf("%q", list)
		}
		if weak && !strings.Contains(list, `"a"`) && !strings.Contains(list, "*") {
			t.Fatalf("%q", list)
		}
		if list = strings.NewReplacer(`"`, "", "*", "").Replace(list); !Listed(`"`+list+`x", W/"y" , "a"`, `"a"`, false) {
			t.Fatalf("%q", list)
		}
	})
}

func TestAccepted(t *testing.T) {
	t.Parallel()
	const browser = "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"
	for _, c := range []struct {
		accept, mediaType string
		want              float64
	}{
		{"", "image/jpeg", 1}, {browser, "image/jpeg", 1}, {browser, "text/csv; charset=utf-8", 0.8}, {"image/*;q=0.5, image/jpeg;q=0", "image/jpeg", 0},
		{"image/*;q=0.5, image/jpeg;q=0", "image/png", 0.5}, {"text/html", "image/png", 0}, {"*/*", "x", 1},
	} {
		var lines []string
		if c.accept != "" {
			lines = strings.SplitAfter(c.accept, ",")
		}
		if got := Accepted(lines, c.mediaType); got != c.want {
			t.Errorf("%q has %q at %v, want %v", c.accept, c.mediaType, got, c.want)
		}
	}
}

func FuzzQuality(f *testing.F) {
	for _, seed := range []string{"gzip", "gzip;q=0", "br, gzip; q=0.5", "*", ";;,gzip;x;q=y"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		if quality(list, "gzip") != 0 && !strings.Contains(strings.ToLower(list), "gzip") {
			t.Fatalf("%q", list)
		}
	})
}
