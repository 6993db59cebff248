// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"log/slog"
	"net/http"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/registry"
)

// doubtedLookups is how many tickets are looked up at a time for addresses that showed too many
// invalid credentials.
const doubtedLookups = 8

// AdmissionConfig is the configuration of an Admission.
type AdmissionConfig struct {
	Limits Limits
	// Certificates name the authorities that sign readers' certificates; nil without TLS.
	Certificates *certificate.Files
	// Proxies whose X-Forwarded-For, -Proto, -Host and -Port are believed.
	Proxies Proxies
	// MaxSockets bounds connections of TCP, and also the requests that are answered at a
	// time; MaxConnections bounds answers that do not end by themselves: live connections
	// and event streams. 0: nothing does.
	MaxSockets, MaxConnections int
	// GiveWay has some clients give way to others, see Precedence.
	GiveWay bool
	// AccessLog gets the requests for data that is not public; nil: there is no access log.
	AccessLog *AccessLog
	Logger    *slog.Logger
	Metrics   prometheus.Registerer
}

// Admission is the first step of all endpoints of a server: it identifies the reader, and checks
// whether there is space for the request. A reader with a valid token, ticket or certificate has a
// share of everything that is bounded; before that, a request has none of it.
type Admission struct {
	cfg      AdmissionConfig
	readers  Readers
	limiter  *Limiter
	failures *failures
	// doubted bounds how many tickets are looked up at a time for addresses that showed too many
	// invalid credentials: a lookup asks NATS.
	doubted  *semaphore.Weighted
	edge     *edge
	requests *Places
	// Precedence decides which clients give way.
	Precedence *Precedence
	// Sockets are the server's; Connections are the places of live answers.
	Sockets     *Sockets
	Connections *Places
	// Traffic is what the archive's answers amount to.
	Traffic Traffic
}

// NewAdmission admits no client yet.
func NewAdmission(cfg AdmissionConfig) *Admission {
	limits := cfg.Limits.withDefaults()
	return &Admission{
		cfg: cfg, readers: Readers{Certificates: cfg.Certificates}, limiter: NewLimiter(cfg.Limits, cfg.Metrics),
		failures: newFailures(limits, cfg), doubted: semaphore.NewWeighted(doubtedLookups), Precedence: NewPrecedence(cfg.GiveWay, cfg.Metrics), edge: newEdge(cfg.Proxies, cfg.Logger, cfg.Metrics),
		Sockets: NewSockets(cfg.MaxSockets, cfg.Proxies, cfg.Metrics), requests: NewPlaces(cfg.MaxSockets, podFull), Connections: NewPlaces(cfg.MaxConnections, podFull),
	}
}

// MaxConnections is AdmissionConfig's.
func (a *Admission) MaxConnections() int { return a.cfg.MaxConnections }

// AccessLog is AdmissionConfig's.
func (a *Admission) AccessLog() *AccessLog { return a.cfg.AccessLog }

// AddressOf is a client's address, see Proxies.AddressOf.
func (a *Admission) AddressOf(r *http.Request) netip.Addr { return a.cfg.Proxies.AddressOf(r) }

// Identify identifies the client, as Readers.Identify does. Unknown credentials are answered late
// if their address showed too many of them; valid ones are not, whatever else comes from their
// address.
func (a *Admission) Identify(s *registry.Snapshot, r *http.Request) (Identity, *problem.Problem) {
	a.edge.look(r)
	who, p := a.readers.Identify(s, r)
	if p != nil {
		p = a.failures.recordFailure(a.AddressOf(r), r, p)
	}
	return who, p
}

// Redeem looks up a ticket by take, as Identify looks up a token. For addresses that showed too
// many unknown credentials, a few tickets are looked up at a time, and the others wait for
// their turn.
func (a *Admission) Redeem(r *http.Request, take func() (Identity, *problem.Problem)) (Identity, *problem.Problem) {
	a.edge.look(r)
	address := a.AddressOf(r)
	who, p := a.lookUp(r, address, take)
	if p != nil && p.Status == http.StatusUnauthorized {
		p = a.failures.recordFailure(address, r, p)
	}
	return who, p
}

func (a *Admission) lookUp(r *http.Request, address netip.Addr, take func() (Identity, *problem.Problem)) (Identity, *problem.Problem) {
	if a.failures.tooMany(address) {
		if a.doubted.Acquire(r.Context(), 1) != nil {
			return Identity{}, problem.New(http.StatusServiceUnavailable, "the request ended before its ticket was looked up")
		}
		defer a.doubted.Release(1)
	}
	return take()
}

// Wait has a client wait for its turn, or refuses it where it asks far too often.
func (a *Admission) Wait(r *http.Request, who Identity) *problem.Problem {
	return a.limiter.Admit(r.Context(), ClassOf(r), a.AddressOf(r), who)
}

// Enter takes a place for a request of a rank, which leave gives back when it is answered.
func (a *Admission) Enter(r *http.Request, who Identity, rank Rank) (leave func(), refused *problem.Problem) {
	if !who.Reader.Anonymous() {
		a.Sockets.Identified(r)
	}
	if p := a.Precedence.admit(rank); p != nil {
		return nil, p
	}
	leave, refused, givesWay := a.requests.EnterBelow(a.Precedence.maxShare(rank), a.AddressOf(r), who)
	if p := a.Precedence.recordPlacement(rank, !givesWay); p != nil {
		return nil, p
	}
	return leave, refused
}
