// SPDX-License-Identifier: Apache-2.0

// Package wan moves objects from a server in this process to a client of its own program at the far end of
// a testenv.Link, with sources and receivers that pause.
package wan

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// Object is an object that is served at /archive/<Instrument>/<Path>.
type Object struct {
	Path   string      `json:"path"`
	Size   int64       `json:"size"`
	Digest wire.Digest `json:"sha256"`
}

const (
	// Instrument is the instrument of all objects.
	Instrument = "radar"
	// serverName is in the server's certificate, whatever its address is.
	serverName = "localhost"
)

// Gaussian are objects of random bytes whose sizes have a mean and a standard deviation of a fifth of it, as chasqui's, and what
// they are cut from.
func Gaussian(n int, mean int64) (objects []Object, from []byte) {
	sizes := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same ones in each run
	var most int64
	for i := range n {
		size := max(1, int64(float64(mean)*(1+sizes.NormFloat64()/5)))
		objects = append(objects, Object{Path: fmt.Sprintf("%d.bin", i), Size: size})
		most = max(most, size)
	}
	from = make([]byte, most)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(from)
	for i := range objects {
		objects[i].Digest = sha256.Sum256(from[:objects[i].Size])
	}
	return objects, from
}

// Pauses are of a source, or a receiver, that works and is idle in turn, each for a time that is distributed
// exponentially, as in the e-VLBI study.
type Pauses struct {
	// Mean of each; 0: it never pauses.
	Mean time.Duration `json:"mean,omitempty"`
	// BytesPerSecond while it works; 0: as fast as it can.
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
}

// pace is a source, or a receiver, between two pauses.
type pace struct {
	Pauses
	random *rand.Rand
	until  time.Time
}

func (p Pauses) begin() *pace {
	of := &pace{Pauses: p, random: rand.New(rand.NewPCG(rand.Uint64(), 0))} //nolint:gosec // not a secret
	of.until = time.Now().Add(of.next())
	return of
}

func (p *pace) next() time.Duration { return time.Duration(p.random.ExpFloat64() * float64(p.Mean)) }

// moved is called after so many bytes, and returns when the next ones may follow.
func (p *pace) moved(n int, took time.Duration) {
	if p.Mean <= 0 {
		return
	}
	if p.BytesPerSecond > 0 {
		time.Sleep(time.Duration(int64(n)*int64(time.Second)/p.BytesPerSecond) - took)
	}
	if time.Now().After(p.until) {
		time.Sleep(p.next())
		p.until = time.Now().Add(p.next())
	}
}

// Objects serves objects, each answer from a source of its own.
func Objects(objects []Object, from []byte, source Pauses) http.Handler {
	mux := http.NewServeMux()
	for _, o := range objects {
		mux.HandleFunc("/archive/"+Instrument+"/"+o.Path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"`+o.Digest.String()+`"`)
			w.Header().Set("Content-Type", "application/octet-stream")
			if source.Mean > 0 {
				w = paced{w, source.begin()}
			}
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(from[:o.Size]))
		})
	}
	return mux
}

// paced writes at a source's pace.
type paced struct {
	http.ResponseWriter
	pace *pace
}

// Write implements io.Writer.
func (p paced) Write(data []byte) (int, error) {
	begun := time.Now()
	n, err := p.ResponseWriter.Write(data)
	p.pace.moved(n, time.Since(begun))
	return n, err
}

// taken is read at a receiver's pace.
type taken struct {
	io.Reader
	pace *pace
}

// Read implements io.Reader.
func (t taken) Read(data []byte) (int, error) {
	begun := time.Now()
	n, err := t.Reader.Read(data)
	t.pace.moved(n, time.Since(begun))
	return n, err
}

// Server is one at all addresses of this process' network namespace.
type Server struct {
	// Port that it listens on, and with TLS the file of the authority that clients trust.
	Port, CA string
}

// Serve starts a server, with TLS or without, which ends with the benchmark.
func Serve(l testing.TB, handler http.Handler, secure bool) (*Server, error) {
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		return nil, err
	}
	s := &Server{}
	_, s.Port, _ = net.SplitHostPort(listener.Addr().String())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	l.Cleanup(func() { _ = server.Close() })
	if !secure {
		go func() { _ = server.Serve(listener) }()
		return s, nil
	}
	ca := testenv.NewCA(l)
	certificate, key := ca.Issue(l, serverName)
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	s.CA = filepath.Join(l.TempDir(), "ca.pem")
	if err := os.WriteFile(s.CA, ca.PEM, 0o600); err != nil {
		return nil, err
	}
	server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	return s, nil
}

// URL of the server, at an address.
func (s *Server) URL(address string) string {
	scheme := "http://"
	if s.CA != "" {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(address, s.Port)
}
