// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Links follow what a request was sent to, as a believed proxy says; of others nothing is believed, and what is declared counts
// in any case. A path prefix is refused in words.
func TestBaseBehindAProxy(t *testing.T) {
	t.Parallel()
	proxies, err := ParseProxies([]string{"192.0.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	check := func(declared string) *AccessCheck {
		a := NewAdmission(AdmissionConfig{Proxies: proxies, Metrics: prometheus.NewRegistry()})
		return &AccessCheck{cfg: AccessCheckConfig{Admission: a, BaseURL: declared}}
	}
	for name, c := range map[string]struct {
		from, declared string
		headers        map[string]string
		tls            bool
		want           string
	}{
		"nothing is said":              {"198.51.100.1", "", nil, false, "http://inside:8080"},
		"over TLS":                     {"198.51.100.1", "", nil, true, "https://inside:8080"},
		"a proxy keeps the host":       {"192.0.2.1", "", map[string]string{"X-Forwarded-Proto": "https"}, false, "https://inside:8080"},
		"a proxy says the host":        {"192.0.2.1", "", map[string]string{"X-Forwarded-Proto": "https", "X-Forwarded-Host": "a.example"}, false, "https://a.example"},
		"a proxy behind another":       {"192.0.2.1", "", map[string]string{"X-Forwarded-Proto": "http, https", "X-Forwarded-Host": "evil.example, a.example:8443"}, false, "https://a.example:8443"},
		"a proxy ends no TLS":          {"192.0.2.1", "", map[string]string{"X-Forwarded-Proto": "http"}, true, "http://inside:8080"},
		"no host":                      {"192.0.2.1", "", map[string]string{"X-Forwarded-Host": "a.example/x"}, false, "http://inside:8080"},
		"a host with a login":          {"192.0.2.1", "", map[string]string{"X-Forwarded-Host": "a@b.example"}, false, "http://inside:8080"},
		"a proxy says the port":        {"192.0.2.1", "", map[string]string{"X-Forwarded-Proto": "https", "X-Forwarded-Host": "a.example", "X-Forwarded-Port": "8443"}, false, "https://a.example:8443"},
		"another port than the host's": {"192.0.2.1", "", map[string]string{"X-Forwarded-Host": "a.example:8080", "X-Forwarded-Port": "80, 9000"}, false, "http://a.example:8080"},
		"the port of HTTPS":            {"192.0.2.1", "", map[string]string{"X-Forwarded-Proto": "https", "X-Forwarded-Host": "a.example", "X-Forwarded-Port": "443"}, false, "https://a.example"},
		"the port behind other TLS":    {"192.0.2.1", "", map[string]string{"X-Forwarded-Proto": "https", "X-Forwarded-Host": "a.example", "X-Forwarded-Port": "80"}, false, "https://a.example"},
		"no port":                      {"192.0.2.1", "", map[string]string{"X-Forwarded-Host": "a.example", "X-Forwarded-Port": "8443/x"}, false, "http://a.example"},
		"an address of IPv6":           {"192.0.2.1", "", map[string]string{"X-Forwarded-Host": "[2001:db8::1]", "X-Forwarded-Port": "8443"}, false, "http://[2001:db8::1]:8443"},
		"an address and its port":      {"192.0.2.1", "", map[string]string{"X-Forwarded-Host": "[2001:db8::1]:8080", "X-Forwarded-Port": "8443"}, false, "http://[2001:db8::1]:8080"},
		"a port from nobody's proxy":   {"198.51.100.1", "", map[string]string{"X-Forwarded-Port": "8443"}, false, "http://inside:8080"},
		"markup for a host":            {"192.0.2.1", "", map[string]string{"X-Forwarded-Host": "<script>"}, false, "http://inside:8080"},
		"a quote in a host":            {"192.0.2.1", "", map[string]string{"X-Forwarded-Host": `a.example"x`}, false, "http://inside:8080"},
		"a host with an empty port":    {"192.0.2.1", "", map[string]string{"X-Forwarded-Host": "a.example:"}, false, "http://inside:8080"},
		"a host with a port too great": {"192.0.2.1", "", map[string]string{"X-Forwarded-Host": "a.example:99999"}, false, "http://inside:8080"},
		"an address without an end":    {"192.0.2.1", "", map[string]string{"X-Forwarded-Host": "[2001:db8::1"}, false, "http://inside:8080"},
		"somebody who is no proxy":     {"198.51.100.1", "", map[string]string{"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example"}, false, "http://inside:8080"},
		"an address that was declared": {"192.0.2.1", "https://archive.example/", map[string]string{"X-Forwarded-Host": "a.example"}, false, "https://archive.example"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host, r.RemoteAddr = "inside:8080", c.from+":1024"
		if c.tls {
			r.TLS = &tls.ConnectionState{}
		}
		for k, v := range c.headers {
			r.Header.Set(k, v)
		}
		if got := check(c.declared).base(&Request{Request: r}); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	for from, status := range map[string]int{"192.0.2.1": http.StatusMisdirectedRequest, "198.51.100.1": 0} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = from + ":1024"
		r.Header.Set("X-Forwarded-Prefix", "/obs")
		p := check("").cfg.Admission.checkPrefix(&Request{Request: r})
		if (p == nil) != (status == 0) || p != nil && p.Status != status {
			t.Errorf("a prefix that %s says: %v", from, p)
		}
	}
}
