// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/internal/natsaccounts"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/bus"
)

// credential is a kind of credential that exists. The names are the rows of the table in docs/explanation/security.md.
type credential struct {
	name string
	user bus.JetStreamUser
	// account that it is of: SUBSTORM, CONSUMERS or COMMANDS.
	account string
	// consumer is the attacker's own in the streams: a FeedConsumer's durable, or one that it makes.
	consumer string
}

func credentials() []credential {
	_, consumer := planned(attacker, 1)
	pushes := &v1alpha1.MirrorPartner{ObjectMeta: metav1.ObjectMeta{Name: "uni"}, Spec: v1alpha1.MirrorPartnerSpec{Direction: v1alpha1.MirrorPush}}
	pulls := &v1alpha1.MirrorPartner{ObjectMeta: metav1.ObjectMeta{Name: "arctic"}, Spec: v1alpha1.MirrorPartnerSpec{
		Direction: v1alpha1.MirrorPull, HTTPS: &v1alpha1.MirrorHTTPS{Origin: "arctic"},
	}}
	all := []credential{
		{"FeedConsumer", consumer, natsaccounts.Consumers, durable(attacker)},
		{"gateway", bus.GatewayUser(site(), pool), natsaccounts.Substorm, "own"},
		{"archivist", bus.ArchivistUser(site()), natsaccounts.Substorm, "own"},
		{"feed server", bus.FeedServerUser(site(), "hub"), natsaccounts.Substorm, "own"},
		{"mirror that pushes", bus.MirrorUser(site(), pushes), natsaccounts.Substorm, "own"},
		{"mirror that pulls", bus.MirrorUser(site(), pulls), natsaccounts.Substorm, "own"},
		{"operator", bus.OperatorUser(site()), natsaccounts.Substorm, "own"},
	}
	for _, command := range backend.Users(code, camera, pod) {
		account := natsaccounts.Substorm
		if command.OfCommands {
			account = natsaccounts.Commands
		}
		all = append(all, credential{command.Name, command.User, account, "own"})
	}
	return all
}

func (c credential) api() string {
	switch c.account {
	case natsaccounts.Consumers:
		return wire.ConsumerAPI
	case natsaccounts.Commands:
		return wire.CommandAPI
	default:
		return "$JS.API"
	}
}

// connect connects with the credential to the Site.
func (c credential) connect(l *lab) attackerConn {
	l.t.Helper()
	var creds string
	switch c.account {
	case natsaccounts.Consumers:
		creds = l.bus.ConsumerCreds(l.t, permissions(c.user))
	case natsaccounts.Commands:
		creds = l.bus.CommandCreds(l.t, permissions(c.user))
	default:
		creds = l.bus.UserCreds(l.t, permissions(c.user))
	}
	nc := l.connect(creds, nats.CustomInboxPrefix(c.user.InboxPrefix))
	own(nc, c.api(), c.consumer)
	return attackerConn{nc: nc, api: c.api(), consumer: c.consumer, publishes: c.user.Publish, arrived: func() {
		if err := nc.Flush(); err != nil {
			l.t.Fatal(err)
		}
	}}
}

// The verdicts in the cells of the table.
const (
	allowed  = "allowed"  // by the permissions
	possible = "possible" // past them
	refused  = "refused"
)

func verdict(by string) string {
	switch by {
	case "":
		return refused
	case directly:
		return allowed
	default:
		return possible
	}
}

// documented returns the cells of the table, by credential.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/explanation/security.md")
	if err != nil {
		t.Fatal(err)
	}
	columns := "| credential |"
	for _, r := range requests {
		columns += " " + r.name + " |"
	}
	_, after, found := strings.Cut(string(text), columns+"\n")
	if !found {
		t.Fatalf("docs/explanation/security.md has no table with the columns %s", columns)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(after) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != len(requests)+1 {
			break
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] != "---" {
			rows[cells[0]] = cells[1:]
		}
	}
	return rows
}

// TestTable tries each request with each kind of credential, by every means that is known, and holds the table in
// docs/explanation/security.md to what comes of it.
func TestTable(t *testing.T) {
	table := documented(t)
	labs := map[string]func(t *testing.T) (*lab, attackerConn){"leaf": newLeafLab}
	for _, c := range credentials() {
		labs[c.name] = func(t *testing.T) (*lab, attackerConn) {
			l := newLab(t, testenv.NATS(t, testenv.NATSOptions{Operator: true}), 1)
			l.fill()
			return l, c.connect(l)
		}
	}
	for name := range table {
		if labs[name] == nil {
			t.Errorf("docs/explanation/security.md has a credential %q, which is none", name)
		}
	}
	for name, start := range labs {
		t.Run(name, func(t *testing.T) {
			l, a := start(t)
			var is []string
			for _, r := range requests {
				by := l.attack(a, r)
				t.Logf("%s: %s: %s %s", name, r.name, verdict(by), by)
				is = append(is, verdict(by))
			}
			if !slices.Equal(is, table[name]) {
				t.Errorf("docs/explanation/security.md says of it %v; it should say\n| %s | %s |", table[name], name, strings.Join(is, " | "))
			}
		})
	}
}

// TestBoundary: what keeps consumers and commands from all this is their account. The same permissions in the account of
// the streams let them do everything.
func TestBoundary(t *testing.T) {
	for _, c := range credentials() {
		if c.account == natsaccounts.Substorm {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			for i, subject := range c.user.Publish {
				c.user.Publish[i] = strings.Replace(subject, c.api(), "$JS.API", 1)
			}
			c.account = natsaccounts.Substorm
			l := newLab(t, testenv.NATS(t, testenv.NATSOptions{Operator: true}), 1)
			l.fill()
			a := c.connect(l)
			for _, r := range requests {
				if by := l.attack(a, r); verdict(by) != possible && r.payload == "" && r.messages == nil {
					t.Errorf("%s: %s: the attack does not work, so this test shows nothing", r.name, verdict(by))
				}
			}
		})
	}
}

// TestLeafCredentials: a client cannot connect with what a leaf's server links with.
func TestLeafCredentials(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{Operator: true})
	user := bus.LeafUser(site(), v1alpha1.Leaf{Code: leaf})
	nc, err := nats.Connect(server.URL(), nats.UserCredentials(server.LeafCreds(t, permissions(user), jwt.ConnectionTypeLeafnode)))
	if err == nil {
		nc.Close()
		t.Error("a client connects with a leaf's credentials")
	}
}
