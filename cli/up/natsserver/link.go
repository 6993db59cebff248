// SPDX-License-Identifier: Apache-2.0

package natsserver

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/substorm/substorm/internal/natsaccounts"
)

const (
	// reconnectEvery is how long the server waits before it tries to link again, and up to as long again.
	reconnectEvery = 5 * time.Second
	// linkTimeout is how long each step of a link may take. The server's defaults are one or two seconds: a satellite takes longer.
	linkTimeout = 10 * time.Second
	// linkPatience is how long a hub may say nothing before that is a problem.
	linkPatience = 2 * linkTimeout
	// reportEvery is how many tries in vain the server reports once: about one an hour. The first is always reported.
	reportEvery = 500
)

// uplink is the link of a server.
type uplink struct {
	mu sync.Mutex
	// is what the server has as its link; nil for none.
	is *natsaccounts.Link
	// began is when the server got it.
	began time.Time
	// linked: it stood since then.
	linked   bool
	problems problems
}

// Link has the server link to a hub, nil for no link. It takes effect without a restart, and ends a link of before that is another one.
func (s *Server) Link(want *natsaccounts.Link) natsaccounts.LinkState {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if !reflect.DeepEqual(s.link.is, want) {
		remotes, err := s.remotes(want)
		if err != nil {
			return natsaccounts.LinkState{Unusable: err.Error()}
		}
		s.link.problems.clear() // before: the first try may have failed by the time relink returns, and the server does not repeat itself
		if err := s.relink(remotes); err != nil {
			return natsaccounts.LinkState{Problem: err.Error()}
		}
		s.link.is, s.link.began, s.link.linked = want, time.Now(), false
	}
	return s.linkState()
}

func (s *Server) linkState() natsaccounts.LinkState {
	if s.link.is == nil {
		return natsaccounts.LinkState{}
	}
	if s.nats.Load().NumLeafNodes() > 0 { // no server links to us: there is no port for leaves
		s.link.linked = true
		s.link.problems.clear()
		return natsaccounts.LinkState{Linked: true}
	}
	problem := s.link.problems.newest()
	if problem == "" && (s.link.linked || time.Since(s.link.began) > linkPatience) {
		problem = "the connection was closed without a reason"
	}
	return natsaccounts.LinkState{Problem: problem}
}

// relink has the server take remotes in place of those that it has.
func (s *Server) relink(remotes []*server.RemoteLeafOpts) error {
	opts := s.opts.Clone()
	opts.LeafNode.Remotes = remotes
	if err := s.nats.Load().ReloadOptions(opts); err != nil {
		return fmt.Errorf("the embedded NATS server does not accept the link: %w", err)
	}
	s.dropCredentials(remotes)
	return nil
}

// remotes is a link as the server's options have it. It denies what the servers of every leaf deny.
func (s *Server) remotes(link *natsaccounts.Link) ([]*server.RemoteLeafOpts, error) {
	if link == nil {
		return nil, nil
	}
	hub, err := url.Parse(link.URL)
	if err != nil {
		return nil, err
	}
	config, err := linkTLS(link)
	if err != nil {
		return nil, err
	}
	file, err := s.keepCredentials(link)
	if err != nil {
		return nil, err
	}
	return []*server.RemoteLeafOpts{{
		URLs: []*url.URL{hub}, LocalAccount: link.Account, Credentials: file,
		TLS: true, TLSConfig: config, TLSTimeout: linkTimeout.Seconds(), DialTimeout: linkTimeout, FirstInfoTimeout: linkTimeout,
		DenyImports: natsaccounts.LeafDenyImports(s.domain, s.domain), DenyExports: natsaccounts.LeafDenyExports(),
	}}, nil
}

func linkTLS(l *natsaccounts.Link) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if l.CA != nil {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(l.CA) {
			return nil, errors.New("ca.crt holds no certificate in PEM")
		}
	}
	if l.Certificate != nil {
		pair, err := tls.X509KeyPair(l.Certificate, l.PrivateKey)
		if err != nil {
			return nil, fmt.Errorf("tls.crt and tls.key are not a certificate and its key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// credentialsDir has the credentials of the link, in a file whose name is a digest of all that authenticates either side: by the name of
// that file the server recognizes a changed remote, and links it again. With the same name an existing link would outlive its authority.
func credentialsDir(dir string) string { return filepath.Join(dir, "upstream") }

func (s *Server) keepCredentials(l *natsaccounts.Link) (string, error) {
	_, noToken := jwt.ParseDecoratedJWT(l.Credentials)
	_, noKey := nkeys.ParseDecoratedUserNKey(l.Credentials)
	if noToken != nil || noKey != nil {
		return "", errors.New("user.creds holds no credentials of a NATS user: it is a file with a JWT and a seed between lines of dashes")
	}
	h := sha256.New()
	for _, part := range [][]byte{l.Credentials, l.CA, l.Certificate, l.PrivateKey} {
		_, _ = fmt.Fprintf(h, "%d ", len(part))
		h.Write(part)
	}
	file := filepath.Join(credentialsDir(s.dir), hex.EncodeToString(h.Sum(nil)[:8])+".creds")
	return file, errors.Join(os.MkdirAll(credentialsDir(s.dir), 0o700), os.WriteFile(file, l.Credentials, 0o600))
}

// dropCredentials removes credentials that no remote uses. A file that stays because of an error is useless to a user that cannot read
// all others.
func (s *Server) dropCredentials(used []*server.RemoteLeafOpts) {
	entries, _ := os.ReadDir(credentialsDir(s.dir))
	for _, e := range entries {
		file := filepath.Join(credentialsDir(s.dir), e.Name())
		if len(used) == 0 || used[0].Credentials != file {
			_ = os.Remove(file)
		}
	}
}
