// SPDX-License-Identifier: Apache-2.0

// Package natsaccounts makes the claims of the NATS accounts that Substorm needs: SUBSTORM, which has the streams; CONSUMERS, whose users
// read their own durables there and reach nothing else of JetStream; COMMANDS, whose users read single messages and ask the archivist for
// changes; and LEAVES, which the servers of leaves link into.
//
// Permissions do not bind the server's answers: a user that may send a request to JetStream chooses the subject of the answer, and the
// server publishes there without asking for permissions. Between accounts it cannot: the answer to a request through a service import is
// delivered in the account that asked, which has no JetStream.
package natsaccounts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/substorm/substorm/internal/wire"
)

// The names of the accounts.
const (
	System    = "SYS"
	Substorm  = "SUBSTORM"
	Consumers = "CONSUMERS"
	Commands  = "COMMANDS"
)

// Service is what an account may ask of SUBSTORM.
type Service struct {
	name    string
	subject jwt.Subject
	// local is the subject in the account that asks. Under $JS.API it would compete with the server's own answer to
	// an account without JetStream.
	local    jwt.RenamingSubject
	response jwt.ResponseType
}

// ConsumerServices are all that a pull consumer needs. Each further one would be within reach of the answers to the
// others.
var ConsumerServices = []Service{
	{"consumer-next", "$JS.API.CONSUMER.MSG.NEXT.*.*", wire.ConsumerAPI + ".CONSUMER.MSG.NEXT.*.*", jwt.ResponseTypeStream},
	{"consumer-info", "$JS.API.CONSUMER.INFO.*.*", wire.ConsumerAPI + ".CONSUMER.INFO.*.*", jwt.ResponseTypeSingleton},
	// Messages name the subject of their acknowledgement, so it keeps its name. Both forms of it are below.
	{"consumer-ack", "$JS.ACK.>", "$JS.ACK.>", jwt.ResponseTypeSingleton},
}

// CommandServices are what commands need that read streams and buckets, and that request changes of the archivist. An
// answer to the first three that is directed at one of the others is no request: it bears the headers of a stored message, or is
// an answer of JetStream's API.
var CommandServices = []Service{
	{"stream-info", "$JS.API.STREAM.INFO.*", wire.CommandAPI + ".STREAM.INFO.*", jwt.ResponseTypeSingleton},
	{"direct-get", "$JS.API.DIRECT.GET.*", wire.CommandAPI + ".DIRECT.GET.*", jwt.ResponseTypeStream},
	{"direct-get-last", "$JS.API.DIRECT.GET.*.>", wire.CommandAPI + ".DIRECT.GET.*.>", jwt.ResponseTypeSingleton},
	{"archive-request", jwt.Subject(wire.RequestSubject("*", "*")), jwt.RenamingSubject(wire.RequestSubject("*", "*")), jwt.ResponseTypeSingleton},
	{"guest-request", jwt.Subject(guestRequests), jwt.RenamingSubject(guestRequests), jwt.ResponseTypeSingleton},
}

// guestRequests are about instruments of other Sites.
var guestRequests = wire.RequestSubject("*", wire.GuestName("*", "*"))

// EnableJetStream gives an account JetStream without limits but the server's.
func EnableJetStream(account *jwt.AccountClaims) {
	account.Limits.JetStreamLimits = jwt.JetStreamLimits{
		MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit,
		MaxAckPending: jwt.NoLimit, MemoryMaxStreamBytes: jwt.NoLimit, DiskMaxStreamBytes: jwt.NoLimit,
	}
}

// ExportServices has SUBSTORM offer its services to accounts that hold an activation token of it, and to no others: on a
// server with further accounts a public export would let each of them read every durable.
func ExportServices(substorm *jwt.AccountClaims) {
	for _, s := range slices.Concat(ConsumerServices, CommandServices) {
		substorm.Exports.Add(&jwt.Export{Name: s.name, Subject: s.subject, Type: jwt.Service, ResponseType: s.response, TokenReq: true})
	}
}

// ImportServices has an account import services that the account with the public key substorm exports. Signer is the key
// of that account, or a signing key of it.
func ImportServices(account *jwt.AccountClaims, services []Service, substorm string, signer nkeys.KeyPair) error {
	for _, s := range services {
		token, err := activate(account.Subject, substorm, signer, s.name, s.subject, jwt.Service)
		if err != nil {
			return err
		}
		account.Imports.Add(&jwt.Import{Name: s.name, Subject: s.subject, LocalSubject: s.local, Account: substorm, Type: jwt.Service, Token: token})
	}
	return nil
}

// Config is the part of a server's configuration that says who the operator is, and which accounts there are. The first
// is the system account.
func Config(operator string, accounts ...string) ([]byte, error) {
	var system string
	var preload strings.Builder
	for i, token := range accounts {
		claims, err := jwt.DecodeAccountClaims(token)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			system = claims.Subject
		}
		fmt.Fprintf(&preload, "  # %s\n  %s: %s\n", claims.Name, claims.Subject, token)
	}
	return fmt.Appendf(nil, "operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: {\n%s}\n", operator, system, preload.String()), nil
}
