// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/substorm/substorm/internal/natsaccounts"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// buses are one server, and three.
var buses = map[string]func(t *testing.T) (servers, int){
	"one server": func(t *testing.T) (servers, int) { return testenv.NATS(t, testenv.NATSOptions{Operator: true}), 1 },
	"three servers": func(t *testing.T) (servers, int) {
		return testenv.NATSCluster(t, testenv.NATSOptions{Operator: true, Domain: code}), 3
	},
}

func (l *lab) consumer(name string) *nats.Conn {
	l.t.Helper()
	_, user := planned(name, 1)
	return l.connect(l.bus.ConsumerCreds(l.t, permissions(user)), nats.CustomInboxPrefix(user.InboxPrefix))
}

// TestSecondHop: a consumer has the server answer to what the account imports for another consumer. Nothing is taken from
// that one, and nothing is acknowledged for it.
func TestSecondHop(t *testing.T) {
	for name, start := range buses {
		t.Run(name, func(t *testing.T) {
			b, replicas := start(t)
			l := newLab(t, b, replicas)
			l.fill()
			nc := l.consumer(attacker)
			for _, stream := range []string{obs, notices} {
				l.fetchOne(stream, durable(other)) // which waits for its acknowledgement: ACK.…1.1.1.1.1 is that
				theirs, ours := stream+"."+durable(other), stream+"."+durable(attacker)
				for _, answer := range []string{wire.ConsumerAPI + ".CONSUMER.MSG.NEXT." + theirs, wire.ConsumerAPI + ".CONSUMER.INFO." + theirs,
					"$JS.API.CONSUMER.MSG.NEXT." + theirs, "$JS.ACK." + theirs + ".1.1.1.1.1", "$JS.ACK.hub.ACC." + theirs + ".1.1.1.1.1"} {
					for _, pull := range []string{"{", `{"batch":1,"no_wait":true}`, `{"batch":1,"expires":1000000000}`} {
						if err := nc.PublishRequest(wire.ConsumerAPI+".CONSUMER.MSG.NEXT."+ours, answer, []byte(pull)); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
			l.settle()
			for _, stream := range []string{obs, notices} {
				c, err := l.js.Consumer(t.Context(), stream, durable(other))
				if err != nil {
					t.Fatal(err)
				}
				if i := c.CachedInfo(); i.Delivered.Consumer != 1 || i.NumAckPending != 1 || i.AckFloor.Consumer > 0 || i.NumWaiting > 0 {
					t.Errorf("%s: of the other's durable %d are delivered, %d wait for their acknowledgement, %d are acknowledged, and %d requests wait",
						stream, i.Delivered.Consumer, i.NumAckPending, i.AckFloor.Consumer, i.NumWaiting)
				}
			}
		})
	}
}

// TestMessagesOfAnother: the subjects on which a consumer may acknowledge do not ask for another one's messages, though an
// acknowledgement has two forms, and the tokens of one can be those of the other.
func TestMessagesOfAnother(t *testing.T) {
	for name, start := range buses {
		t.Run(name, func(t *testing.T) {
			b, replicas := start(t)
			l := newLab(t, b, replicas)
			l.fill()
			nc := l.consumer(attacker)
			_, user := planned(attacker, 1)
			got, err := nc.SubscribeSync(user.InboxPrefix + ".>")
			if err != nil {
				t.Fatal(err)
			}
			for _, stream := range []string{obs, notices} {
				theirs, ours := stream+"."+durable(other), stream+"."+durable(attacker)
				for _, subject := range []string{theirs + "." + ours + ".1.1.1", ours + "." + theirs + ".1.1.1.1.1", "hub.ACC." + theirs + ".1.1.1.1.1",
					ours + "." + theirs + ".1.1.1", theirs + "." + ours + ".1.1.1.1.1", theirs + ".1.1.1.1.1"} {
					if err := nc.PublishRequest("$JS.ACK."+subject, user.InboxPrefix+".x", []byte(`+NXT {"batch":1,"no_wait":true}`)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
			l.settle()
			for _, stream := range []string{obs, notices} {
				c, err := l.js.Consumer(t.Context(), stream, durable(other))
				if err != nil {
					t.Fatal(err)
				}
				if i := c.CachedInfo(); i.Delivered.Consumer != 0 || i.NumWaiting > 0 {
					t.Errorf("%s: of the other's durable %d are delivered, and %d requests wait", stream, i.Delivered.Consumer, i.NumWaiting)
				}
			}
			for {
				m, err := got.NextMsg(time.Millisecond)
				if errors.Is(err, nats.ErrTimeout) {
					break
				}
				if errors.Is(err, nats.ErrNoResponders) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(m.Reply, durable(attacker)) { // with the tokens of the other in the place of domain and account it asked for its own
					t.Errorf("a message came, to be acknowledged to %q", m.Reply)
				}
			}
		})
	}
}

// fetchOne takes one message from a durable and does not acknowledge it.
func (l *lab) fetchOne(stream, durable string) {
	l.t.Helper()
	c, err := l.js.Consumer(l.t.Context(), stream, durable)
	if err != nil {
		l.t.Fatal(err)
	}
	if m, err := c.Next(); err != nil {
		l.t.Fatalf("%s of %s: %v", durable, stream, err)
	} else if meta, err := m.Metadata(); err != nil || meta.Sequence.Stream != 1 || meta.Sequence.Consumer != 1 {
		l.t.Fatalf("%s of %s: %+v, %v", durable, stream, meta, err)
	}
}

// TestConsumersRead: through the boundary a consumer gets and acknowledges everything once, and in the stream's order.
func TestConsumersRead(t *testing.T) {
	for name, start := range buses {
		t.Run(name, func(t *testing.T) {
			b, replicas := start(t)
			l := newLab(t, b, replicas)
			const messages = 1000
			for i := range messages {
				if _, err := l.js.PublishAsync(wire.ObservationSubject(code, mag, "raw"), fmt.Append(nil, i)); err != nil {
					t.Fatal(err)
				}
			}
			<-l.js.PublishAsyncComplete()
			js, err := jetstream.NewWithAPIPrefix(l.consumer(attacker), wire.ConsumerAPI)
			if err != nil {
				t.Fatal(err)
			}
			c, err := js.Consumer(t.Context(), obs, durable(attacker))
			if err != nil {
				t.Fatal(err)
			}
			read, err := c.Messages(jetstream.PullMaxMessages(100))
			if err != nil {
				t.Fatal(err)
			}
			defer read.Stop()
			for i := range messages {
				m, err := read.Next(jetstream.NextContext(t.Context()))
				if err != nil {
					t.Fatal(err)
				}
				if string(m.Data()) != fmt.Sprint(i) {
					t.Fatalf("message %d is %s", i, m.Data())
				}
				if err := m.DoubleAck(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			c, err = l.js.Consumer(t.Context(), obs, durable(attacker))
			if err != nil {
				t.Fatal(err)
			}
			if i := c.CachedInfo(); i.AckFloor.Stream != messages || i.NumAckPending > 0 || i.NumRedelivered > 0 {
				t.Errorf("acknowledged to %d, %d wait, %d came again", i.AckFloor.Stream, i.NumAckPending, i.NumRedelivered)
			}
		})
	}
}

// TestOtherAccounts: an account of the same servers that was given no activation token imports nothing, also with a
// token that it forged. With public exports it would read every durable.
func TestOtherAccounts(t *testing.T) {
	for name, c := range map[string]struct {
		public, reads bool
		token         func(t *testing.T, substorm string, claims *jwt.AccountClaims)
	}{
		"without a token":     {},
		"with a forged one":   {token: forgedToken},
		"were exports public": {public: true, reads: true},
	} {
		t.Run(name, func(t *testing.T) {
			account, err := nkeys.CreateAccount()
			if err != nil {
				t.Fatal(err)
			}
			id, err := account.PublicKey()
			if err != nil {
				t.Fatal(err)
			}
			server := testenv.NATS(t, testenv.NATSOptions{Operator: true, Also: func(substorm *jwt.AccountClaims) *jwt.AccountClaims {
				claims := jwt.NewAccountClaims(id)
				claims.Name = "OTHERS"
				if err := natsaccounts.ImportServices(claims, natsaccounts.ConsumerServices, substorm.Subject, account); err != nil {
					t.Fatal(err)
				}
				for _, i := range claims.Imports {
					i.Token = ""
				}
				if c.token != nil {
					c.token(t, substorm.Subject, claims)
				}
				for _, e := range substorm.Exports {
					e.TokenReq = !c.public
				}
				return claims
			}})
			l := newLab(t, server, 1)
			l.fill()
			nc := l.connect(othersUser(t, account))
			m, err := nc.Request(wire.ConsumerAPI+".CONSUMER.MSG.NEXT."+obs+"."+durable(other), []byte(`{"batch":1,"no_wait":true}`), 2*time.Second)
			switch {
			case c.reads && (err != nil || string(m.Data) != "datagram"):
				t.Errorf("with public exports: %v, %v", m, err)
			case !c.reads && !errors.Is(err, nats.ErrNoResponders):
				t.Errorf("it was answered: %v, %v", m, err)
			}
		})
	}
}

// forgedToken gives the claims tokens that an unknown key signed in the name of the account with the streams.
func forgedToken(t *testing.T, substorm string, claims *jwt.AccountClaims) {
	signer, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	forged := jwt.NewAccountClaims(claims.Subject)
	if err := natsaccounts.ImportServices(forged, natsaccounts.ConsumerServices, substorm, signer); err != nil {
		t.Fatal(err)
	}
	claims.Imports = forged.Imports
}

// othersUser is a user who may do everything in an account.
func othersUser(t *testing.T, account nkeys.KeyPair) string {
	t.Helper()
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	id, err := user.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.NewUserClaims(id).Encode(account)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	creds, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "user.creds")
	if err := os.WriteFile(file, creds, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
