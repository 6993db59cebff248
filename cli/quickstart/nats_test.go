// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	corev1 "k8s.io/api/core/v1"

	"github.com/substorm/substorm/internal/testenv"
)

// startNATS runs a real server with the keys in v, as the chart does, and returns its URL.
func startNATS(t *testing.T, v *Memory) string {
	t.Helper()
	return startNATSWith(t, v, "MEMORY")
}

// startNATSWith starts one with a resolver; "{dir}" in it is a folder of the server's.
func startNATSWith(t *testing.T, v *Memory, resolver string) string {
	t.Helper()
	dir := t.TempDir()
	resolver = "resolver: " + strings.ReplaceAll(resolver, "{dir}", dir)
	for name, data := range map[string][]byte{
		"auth.conf": bytes.Replace(v.data(t, "substorm-nats-auth")[keyAuthConf], []byte("resolver: MEMORY"), []byte(resolver), 1),
		"ca.crt":    v.data(t, "substorm-tls-nats")[keyCA],
		"tls.crt":   v.data(t, "substorm-tls-nats")[corev1.TLSCertKey],
		"tls.key":   v.data(t, "substorm-tls-nats")[corev1.TLSPrivateKeyKey],
		"nats.conf": fmt.Appendf(nil, `
listen: "127.0.0.1:-1"
ports_file_dir: %[1]q
include auth.conf
tls { cert_file: "%[1]s/tls.crt", key_file: "%[1]s/tls.key", ca_file: "%[1]s/ca.crt", verify: true }
jetstream { store_dir: "%[1]s/jetstream", domain: test, sync_interval: always }
`, dir),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(testenv.Path(t, "nats-server"), "-c", filepath.Join(dir, "nats.conf"))
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	return serverURL(t, filepath.Join(dir, fmt.Sprintf("nats-server_%d.ports", cmd.Process.Pid)))
}

func serverURL(t *testing.T, portsFile string) string {
	t.Helper()
	for range testenv.Attempts() {
		var ports struct {
			Nats []string `json:"nats"`
		}
		body, err := os.ReadFile(portsFile)
		if err == nil && json.Unmarshal(body, &ports) == nil && len(ports.Nats) > 0 {
			return ports.Nats[0]
		}
	}
	t.Fatal("nats-server wrote no ports file")
	return ""
}

// userOf returns an option for a user that seed signs for the account.
func userOf(t *testing.T, account, seed string) nats.Option {
	t.Helper()
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	return signedUser(t, user, account, seed)
}

// signedUser is an option for a user with a key, as the operator of Substorm issues it.
func signedUser(t *testing.T, user nkeys.KeyPair, account, seed string) nats.Option {
	t.Helper()
	signer, err := nkeys.FromSeed([]byte(seed))
	if err != nil {
		t.Fatal(err)
	}
	public, err := user.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	claims := jwt.NewUserClaims(public)
	claims.IssuerAccount = account
	token, err := claims.Encode(signer)
	if err != nil {
		t.Fatal(err)
	}
	return nats.UserJWT(func() (string, error) { return token, nil }, user.Sign)
}

// clientTLS trusts v's authority and shows the client certificate of v where with is true.
func clientTLS(t *testing.T, v *Memory, with bool) nats.Option {
	t.Helper()
	data := v.data(t, "substorm-tls-client")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(data[keyCA])
	conf := clientOf(roots)
	conf.ServerName = "substorm-nats.aurora.svc"
	if with {
		pair, err := parse(data)
		if err != nil {
			t.Fatal(err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return nats.Secure(conf)
}

func clientOf(roots *x509.CertPool) *tls.Config {
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

func TestServerKnowsTheAccountsUsersOnly(t *testing.T) {
	v := complete(t)
	url := startNATS(t, v)
	account := v.data(t, "substorm-nats-account")
	id, seed := string(account[keyAccountID]), string(account[keyAccountSeed])

	nc, err := nats.Connect(url, clientTLS(t, v, true), userOf(t, id, seed))
	if err != nil {
		t.Fatalf("a user that the account's signing key signed: %v", err)
	}
	defer nc.Close()
	storeInStream(t, nc)

	other := complete(t).data(t, "substorm-nats-account")
	for name, options := range map[string][]nats.Option{
		"signed by another key for our account": {clientTLS(t, v, true), userOf(t, id, string(other[keyAccountSeed]))},
		"of an account the server lacks": {clientTLS(t, v, true),
			userOf(t, string(other[keyAccountID]), string(other[keyAccountSeed]))},
		"nobody": {clientTLS(t, v, true)},
	} {
		if nc, err := nats.Connect(url, options...); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: got %v, want %v", name, err, nats.ErrAuthorization)
			closeIfOpen(nc)
		}
	}
	if nc, err := nats.Connect(url, clientTLS(t, v, false), userOf(t, id, seed)); err == nil {
		t.Error("a client without a certificate was let in")
		closeIfOpen(nc)
	}
}

func closeIfOpen(nc *nats.Conn) {
	if nc != nil {
		nc.Close()
	}
}

// storeInStream shows that the account may use JetStream.
func storeInStream(t *testing.T, nc *nats.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "OBS_test", Subjects: []string{"obs.test.>"}, MaxBytes: 4 << 30})
	if err != nil {
		t.Fatal(err)
	}
	ack, err := js.Publish(ctx, "obs.test.camera.raw", []byte("frame"))
	if err != nil {
		t.Fatal(err)
	}
	if ack.Sequence != 1 || ack.Domain != "test" {
		t.Errorf("acknowledged as %d in domain %q, want 1 in test", ack.Sequence, ack.Domain)
	}
}
