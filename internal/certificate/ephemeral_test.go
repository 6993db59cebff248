// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
)

func ephemeral(t *testing.T) *Ephemeral {
	t.Helper()
	e, err := NewEphemeral("test")
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// shake connects a client to a server over the loopback, and returns what each saw of the handshake.
func shake(t *testing.T, server, client *tls.Config) (state tls.ConnectionState, atServer, atClient error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		plain, err := l.Accept()
		if err != nil {
			atServer = err
			return
		}
		defer plain.Close()
		c := tls.Server(plain, server)
		if atServer = c.Handshake(); atServer == nil {
			state = c.ConnectionState()
			_, atServer = c.Write([]byte("hello"))
		}
	}()
	c, err := tls.Dial("tcp", l.Addr().String(), client)
	if err == nil {
		_, err = io.ReadAll(c) // a server's refusal comes after the client's part of the handshake
		_ = c.Close()
	}
	<-done
	return state, atServer, err
}

// Two processes that know each other's SHA-256 authenticate each other, and no one else.
func TestEphemeral(t *testing.T) {
	t.Parallel()
	server, client := ephemeral(t), ephemeral(t)
	if server.Digest() == client.Digest() {
		t.Fatal("two processes have one certificate")
	}
	state, atServer, atClient := shake(t, server.Server(), client.Client(server.Digest()))
	if shown, ok := Shown(&state); atServer != nil || atClient != nil || !ok || shown != client.Digest() || state.Version != tls.VersionTLS13 {
		t.Errorf("shown %v, %t; %v, %v", shown, ok, atServer, atClient)
	}
	if _, _, err := shake(t, server.Server(), client.Client(client.Digest())); !errors.Is(err, errOtherServer) {
		t.Errorf("a client takes another server: %v", err)
	}
	if _, _, err := shake(t, ephemeral(t).Server(), client.Client(server.Digest())); !errors.Is(err, errOtherServer) {
		t.Errorf("a client takes a later process: %v", err)
	}
	bare := client.Client(server.Digest())
	bare.Certificates = nil
	if _, atServer, atClient := shake(t, server.Server(), bare); !errors.Is(atServer, errNoCertificate) || !Refused(atServer) || atClient == nil {
		t.Errorf("no certificate: %v, %v", atServer, atClient)
	}
	old := client.Client(server.Digest())
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if _, atServer, _ := shake(t, server.Server(), old); atServer == nil {
		t.Error("TLS 1.2 is taken")
	}
	if _, ok := Shown(nil); ok {
		t.Error("a plain connection showed a certificate")
	}
	if _, ok := Shown(&tls.ConnectionState{}); ok {
		t.Error("a connection without a certificate showed one")
	}
	// A certificate is not enough: who shows it must have its key.
	stolen := client.Client(server.Digest())
	stolen.Certificates = []tls.Certificate{{Certificate: server.pair.Certificate, PrivateKey: client.pair.PrivateKey}}
	if _, atServer, _ := shake(t, server.Server(), stolen); atServer == nil {
		t.Error("a certificate is taken from who has not its key")
	}
}
