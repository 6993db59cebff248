// SPDX-License-Identifier: Apache-2.0

// Package endpoint is what the HTTP endpoints of the archive share: identification of clients,
// their kind, rate limits, and conditional requests.
package endpoint

import (
	"log/slog"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// AccessCheckConfig says who is let in, and which callbacks get the results.
type AccessCheckConfig struct {
	// Registry returns the current rights: who may read what.
	Registry func() *registry.Snapshot
	// Admission is the server's, which other endpoints have too; nil: one of the access check's
	// own, with these Limits, Certificates and Proxies.
	Admission    *Admission
	Limits       Limits
	Certificates *certificate.Files
	Proxies      Proxies
	// BaseURL is the Site's address for others, without a slash at its end; empty: what
	// the request was sent to.
	BaseURL string
	// Draining is closed when answers are to end that do not do so by themselves, so that
	// clients go to another replica; nil: they end with the server.
	Draining <-chan struct{}
	// Count is called when an answer ends, with the instrument and the reader (both may be empty),
	// the status and the number of content bytes sent. For an answer about several instruments it
	// is called once for each. Optional. It must not block.
	Count func(instrument, reader string, class Class, status int, bytes int64)
	// Damaged is called with an object that could not be served: its bytes are not those that were
	// received, or missing. Optional. It must not block.
	Damaged func(instrument string, r wire.Record, missing bool)
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

// AccessCheck is what the endpoints of HTTP to the archive share: all requests come through one.
type AccessCheck struct {
	cfg     AccessCheckConfig
	metrics *metrics
}

// NewAccessCheck returns an access check.
func NewAccessCheck(cfg AccessCheckConfig) *AccessCheck {
	if cfg.Admission == nil {
		cfg.Admission = NewAdmission(AdmissionConfig{Limits: cfg.Limits, Certificates: cfg.Certificates, Proxies: cfg.Proxies, Logger: cfg.Logger, Metrics: cfg.Metrics})
	}
	return &AccessCheck{cfg: cfg, metrics: newMetrics(cfg.Metrics)}
}

// Answer is what all endpoints do first and last.
func (g *AccessCheck) Answer(serve func(*Request) *problem.Problem) http.HandlerFunc {
	return g.answer(serve, false, http.MethodGet, http.MethodHead, http.MethodOptions)
}

// AnswerBulk is Answer for what is read in bulk, see Precedence.
func (g *AccessCheck) AnswerBulk(serve func(*Request) *problem.Problem) http.HandlerFunc {
	return g.answer(serve, true, http.MethodGet, http.MethodHead, http.MethodOptions)
}

// AnswerQuestion is AnswerBulk for endpoints whose questions are too long for a URL: they come
// as the body of a POST, which changes nothing here either.
func (g *AccessCheck) AnswerQuestion(serve func(*Request) *problem.Problem) http.HandlerFunc {
	return g.answer(serve, true, http.MethodPost)
}

func (g *AccessCheck) answer(serve func(*Request) *problem.Problem, bulk bool, methods ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := &Request{Request: r, Snapshot: g.cfg.Registry(), Now: time.Now(), check: g, class: ClassOf(r), bulk: bulk}
		v.sent.ResponseWriter, v.sent.traffic = w, &g.cfg.Admission.Traffic
		v.W = &v.sent
		defer v.count() // also where serve aborts
		leave, p := g.admit(v, methods)
		defer leave()
		if p == nil && r.Method == http.MethodOptions {
			preflight(v.W)
			return
		}
		if p == nil {
			p = serve(v)
		}
		if p != nil {
			g.cfg.Logger.Debug("refused", "path", r.URL.Path, "remote", r.RemoteAddr, "status", p.Status, "why", p.Detail)
			refuse(v.W, p)
		}
	}
}

// Handle is Answer for handlers that know nothing of requests: RequestOf returns it.
func (g *AccessCheck) Handle(h http.Handler) http.HandlerFunc {
	return g.Answer(func(v *Request) *problem.Problem {
		h.ServeHTTP(v.W, v.Request.WithContext(withRequest(v.Context(), v)))
		return nil
	})
}

// refuse answers with a problem. It removes headers that describe the object, because they do
// not hold for the answer.
func refuse(w http.ResponseWriter, p *problem.Problem) {
	h := w.Header()
	for _, name := range []string{"ETag", "Last-Modified", "Repr-Digest", "Accept-Ranges", "Content-Location", "Vary"} {
		h.Del(name)
	}
	if p.Status == http.StatusUnauthorized {
		Challenge(h)
	}
	p.Write(w)
}

// admit identifies the client, which uses one of some methods, and lets it wait for its turn.
func (g *AccessCheck) admit(v *Request, methods []string) (leave func(), refused *problem.Problem) {
	leave = func() {}
	h := v.W.Header()
	h.Set("Access-Control-Allow-Origin", "*") // credentials are shown by the page itself, or not at all
	h.Set("Access-Control-Expose-Headers", exposed)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", sandbox)
	if !slices.Contains(methods, v.Method) {
		h.Set("Allow", strings.Join(methods, ", "))
		return leave, problem.New(http.StatusMethodNotAllowed, "the archive is read here: %s %s changes nothing", v.Method, v.URL.Path)
	}
	return g.cfg.Admission.admit(v)
}

// admit identifies the client, and takes a place for the request.
func (a *Admission) admit(v *Request) (leave func(), refused *problem.Problem) {
	leave = func() {}
	if p := a.checkPrefix(v); p != nil {
		return leave, p
	}
	who, refused := a.Identify(v.Snapshot, v.Request)
	v.Identity = who
	// Clients that guess tokens are slowed down as well.
	if p := a.Wait(v.Request, who); p != nil {
		return leave, p
	}
	if refused != nil {
		return leave, refused
	}
	// After the limits of clients: requests that give way count as load, and without a limit one client could have the operator ask for all pods
	// that there may be.
	entered, full := a.Enter(v.Request, who, rankOf(v.class, who, v.bulk))
	if full != nil {
		return leave, full
	}
	return entered, nil
}

const (
	// sandbox is the Content-Security-Policy of all answers that have none of their own: a
	// browser shows what an instrument sent, whatever type it was given, and runs none of
	// it as a page of this origin.
	sandbox = "sandbox; default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'"
	// exposed are the headers that a page's scripts may read.
	exposed = "Accept-Ranges, Content-Location, Content-Range, ETag, Link, Repr-Digest, Retry-After"
	// asking are the headers that a page's scripts may send.
	asking = "Authorization, If-Match, If-Modified-Since, If-None-Match, If-Range, If-Unmodified-Since, Last-Event-ID, Range, Want-Repr-Digest"
)

// preflight answers what browsers ask before they send what is not simple to another
// site (Fetch, CORS protocol).
func preflight(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, HEAD")
	h.Set("Access-Control-Allow-Headers", asking)
	h.Set("Access-Control-Max-Age", "86400")
	h.Set("Allow", "GET, HEAD, OPTIONS")
	w.WriteHeader(http.StatusNoContent)
}

// base is the Site's address for the client: as declared, or else what the request was sent to, as a believed proxy
// says.
func (g *AccessCheck) base(v *Request) string {
	if g.cfg.BaseURL != "" {
		return strings.TrimSuffix(g.cfg.BaseURL, "/")
	}
	scheme, host := "http", v.Host
	if v.TLS != nil {
		scheme = "https"
	}
	if g.cfg.Admission.cfg.Proxies.Trusted(v.Request) {
		if said := strings.ToLower(lastOf(v.Header.Values("X-Forwarded-Proto"))); said == "https" || said == "http" {
			scheme = said
		}
		if said := lastOf(v.Header.Values("X-Forwarded-Host")); isHost(said) {
			host = said
		}
		host = withPort(host, lastOf(v.Header.Values("X-Forwarded-Port")))
	}
	return scheme + "://" + host
}

// lastOf is the last member of a header that is a list: that which the nearest proxy says.
func lastOf(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	members := strings.Split(lines[len(lines)-1], ",")
	return strings.TrimSpace(members[len(members)-1])
}

// hostName is a name of DNS, or an IPv4 address.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?\.?$`)

// isHost reports whether a text is a host with or without a port.
func isHost(text string) bool {
	host, port, found := text, "", false
	if i := strings.LastIndexByte(text, ':'); i > strings.LastIndexByte(text, ']') {
		host, port, found = text[:i], text[i+1:], true
	}
	if found && !isPort(port) {
		return false
	}
	if inner, opened := strings.CutPrefix(host, "["); opened {
		inner, closed := strings.CutSuffix(inner, "]")
		a, err := netip.ParseAddr(inner)
		return closed && err == nil && a.Is6() && a.Zone() == ""
	}
	return hostName.MatchString(host)
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// withPort is a host with the port that a proxy says, where the host has none. The ports of HTTP and HTTPS are not written: a proxy that
// does not end TLS itself names the wrong one of the two.
func withPort(host, port string) string {
	if !isPort(port) || port == "80" || port == "443" || strings.LastIndexByte(host, ':') > strings.LastIndexByte(host, ']') {
		return host
	}
	return host + ":" + port
}

// checkPrefix returns a problem if a trusted proxy serves the Site below a path, where links, which begin at the root, lead
// elsewhere.
func (a *Admission) checkPrefix(v *Request) *problem.Problem {
	prefix := strings.Trim(lastOf(v.Header.Values("X-Forwarded-Prefix")), "/")
	if prefix == "" || !a.cfg.Proxies.Trusted(v.Request) {
		return nil
	}
	return problem.New(http.StatusMisdirectedRequest, "the proxy serves this below /%.100s: give the feed server a host name of its own, since its links begin at the root", prefix)
}
