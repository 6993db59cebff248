// SPDX-License-Identifier: Apache-2.0

package natsserver_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/cli/up/natsserver"
	"github.com/substorm/substorm/internal/natsaccounts"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
)

// TestLink: a server that runs links to a hub, says why it does not, takes other credentials and another authority, and ends the link; what its
// streams hold and the connections of its own programs stay.
func TestLink(t *testing.T) {
	monitor := testenv.FreePort(t)
	hub := testenv.NATS(t, testenv.NATSOptions{Operator: true, TLS: true, AnyClient: true, Domain: "hub", TakesLeaves: true, Config: fmt.Sprintf("http: \"127.0.0.1:%d\"\n", monitor)})
	read := func(file string) []byte {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	dir := t.TempDir()
	config, creds := accounts(t)
	s, err := natsserver.Start(t.Context(), natsserver.Config{Dir: dir, Domain: "north", Accounts: config, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	stream.Embed(s)
	defer stream.Embed(nil)
	nc, err := stream.Connect(t.Context(), stream.Config{Servers: []string{stream.EmbeddedURL}, Credentials: creds})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "NOTICE_north", Subjects: []string{"notice.north.>"}}); err != nil {
		t.Fatal(err)
	}
	user, err := jwt.ParseDecoratedJWT(creds)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := jwt.DecodeUserClaims(user)
	if err != nil {
		t.Fatal(err)
	}
	good := natsaccounts.Link{URL: "tls://" + hub.LeafAddress(), Account: claims.Issuer, CA: hub.CA.PEM, Credentials: read(hub.LeafCreds(t, jwt.Permissions{}))}

	with := func(change func(*natsaccounts.Link)) *natsaccounts.Link {
		link := good
		change(&link)
		return &link
	}
	tries := func(what string, link *natsaccounts.Link, is func(natsaccounts.LinkState) bool) {
		t.Helper()
		var state natsaccounts.LinkState
		for range testenv.Attempts() {
			if state = s.Link(link); is(state) {
				return
			}
		}
		t.Fatalf("%s: the link is %+v", what, state)
	}
	fails := func(text string) func(natsaccounts.LinkState) bool {
		return func(state natsaccounts.LinkState) bool {
			return !state.Linked && strings.Contains(state.Problem+state.Unusable, text)
		}
	}
	linked := func(state natsaccounts.LinkState) bool { return state.Linked && state.Problem == "" }

	tries("nothing listens", with(func(l *natsaccounts.Link) { l.URL = fmt.Sprintf("tls://127.0.0.1:%d", testenv.FreePort(t)) }), fails("connection refused"))
	tries("no such host", with(func(l *natsaccounts.Link) { l.URL = "tls://no-such-hub.invalid:7422" }), fails("no-such-hub.invalid"))
	tries("the port for clients", with(func(l *natsaccounts.Link) { l.URL = "tls://" + hub.Address() }), fails("wrong port"))
	tries("another hub's credentials", with(func(l *natsaccounts.Link) { l.Credentials = creds }), fails("Authorization Violation"))
	tries("another authority", with(func(l *natsaccounts.Link) { l.CA = testenv.NewCA(t).PEM }), fails("x509"))
	tries("no authority", with(func(l *natsaccounts.Link) { l.CA = []byte("none") }), fails("ca.crt"))
	tries("no credentials", with(func(l *natsaccounts.Link) { l.Credentials = []byte("none") }), fails("user.creds"))
	tries("no key", with(func(l *natsaccounts.Link) { l.Certificate, l.PrivateKey = hub.CA.PEM, []byte("none") }), fails("tls.key"))
	tries("the hub", &good, linked)
	tries("another authority than that of a link which stands", with(func(l *natsaccounts.Link) { l.CA = testenv.NewCA(t).PEM }), fails("x509"))
	tries("the hub again", &good, linked)
	files, err := filepath.Glob(filepath.Join(dir, "upstream", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the credentials are in %q, %v", files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the credentials: %v, %v", info, err)
	}
	hub.Stop()
	tries("the hub is away", &good, func(state natsaccounts.LinkState) bool { return !state.Linked && state.Problem != "" })
	hub.Start()
	tries("the hub is back", &good, linked)
	tries("other credentials", with(func(l *natsaccounts.Link) { l.Credentials = read(hub.LeafCreds(t, jwt.Permissions{})) }), linked)

	if state := s.Link(nil); state != (natsaccounts.LinkState{}) {
		t.Errorf("without a link it is %+v", state)
	}
	leaves := func() int {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/leafz", monitor))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		var is struct{ Leafnodes int }
		if err := json.NewDecoder(resp.Body).Decode(&is); err != nil {
			t.Fatal(err)
		}
		return is.Leafnodes
	}
	for range testenv.Attempts() {
		if leaves() == 0 {
			break
		}
	}
	if n := leaves(); n != 0 {
		t.Errorf("the hub has %d links after the last was ended", n)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "upstream")); len(left) > 0 {
		t.Errorf("credentials stay that nobody uses: %v", left)
	}
	if nc.Status() != nats.CONNECTED || nc.Reconnects > 0 {
		t.Errorf("the connection of a program is %v after %d reconnects", nc.Status(), nc.Reconnects)
	}
	if _, err := js.Publish(t.Context(), "notice.north.camera", []byte("notice")); err != nil {
		t.Error(err)
	}
}
