// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	random "math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/internal/wire"
)

// sendersEnvironment tells a process that it is the one that sends to gateways.
const sendersEnvironment = "SUBSTORM_BENCH_STORM_LIVE_SENDERS"

const (
	objectSize = 16 << 10
	// senderPatience is how long an object may take until its receipt.
	senderPatience = 10 * time.Second
	// sendersAtOnce are fewer than the connections that an Instrument may have at one pod by default.
	sendersAtOnce = 1000
	// gatewayName is in the certificate of gateways.
	gatewayName = "gateway.storm-live.example"
)

// sending is what is sent from a time on: each object over a TLS connection of its own, as cameras do.
type sending struct {
	Pods      pods
	Authority []byte
	Begin     time.Time
	// Rate is how many objects a second there are in the calm.
	Rate  float64
	Parts []part
	Seed  uint64
}

// sent is what came of it.
type sent struct {
	Parts []sentPart
	// Receipts are the digests of objects that are safe.
	Receipts []wire.Digest
	Error    string
}

// sentPart is the result of a part. Cores of a processor are what sending took.
type sentPart struct {
	answers
	Cores float64
}

type sender struct {
	pods  *targets
	tls   *tls.Config
	space chan struct{}
	all   sync.WaitGroup

	mu       sync.Mutex
	receipts []wire.Digest
}

// send carries out an order to a worker.
func send(o sending) sent {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	found, err := o.Pods.follow(ctx)
	if err != nil {
		return sent{Error: err.Error()}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(o.Authority)
	s := &sender{pods: found, tls: &tls.Config{RootCAs: roots, ServerName: gatewayName}, space: make(chan struct{}, sendersAtOnce)}
	out := sent{Parts: make([]sentPart, len(o.Parts))}
	cores := inTurn(o.Begin, o.Parts, func(i int, p part, begin time.Time) {
		s.during(begin, p.For, o.Rate*p.Times, o.Seed*uint64(len(o.Parts))+uint64(i), &out.Parts[i].answers)
	})
	s.all.Wait()
	for i := range out.Parts {
		out.Parts[i].Cores, out.Parts[i].answers = cores[i], out.Parts[i].sum()
	}
	out.Receipts = s.receipts
	return out
}

// during sends what is due in a part, at random instants.
func (s *sender) during(begin time.Time, part time.Duration, rate float64, seed uint64, a *answers) {
	instants := random.New(random.NewPCG(seed, 1996))
	for due := begin; ; {
		due = due.Add(time.Duration(instants.ExpFloat64() / rate * float64(time.Second)))
		if due.Sub(begin) > part {
			return
		}
		time.Sleep(time.Until(due))
		select {
		case s.space <- struct{}{}:
		default:
			s.mu.Lock()
			a.All++
			a.Unsent++
			s.mu.Unlock()
			continue
		}
		s.all.Go(func() {
			defer func() { <-s.space }()
			digest, err := s.one(newObject())
			s.add(a, digest, err, time.Since(due))
		})
	}
}

func (s *sender) add(a *answers, digest wire.Digest, err error, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.All++
	if err != nil {
		a.fail("an object: %v", report.Cause(err))
		return
	}
	a.Bytes += objectSize
	a.times = append(a.times, took)
	s.receipts = append(s.receipts, digest)
}

// newObject returns a unique object.
func newObject() []byte {
	body := make([]byte, objectSize)
	for i := 0; i < len(body); i += 8 {
		binary.LittleEndian.PutUint64(body[i:], random.Uint64())
	}
	return body
}

// one sends an object and waits for its receipt.
func (s *sender) one(body []byte) (wire.Digest, error) {
	digest := wire.Digest(sha256.Sum256(body))
	address, err := s.pods.pick()
	if err != nil {
		return digest, err
	}
	raw, err := net.DialTimeout("tcp", address, senderPatience)
	if err != nil {
		return digest, err
	}
	defer raw.Close()
	if err := raw.SetDeadline(time.Now().Add(senderPatience)); err != nil {
		return digest, err
	}
	conn := tls.Client(raw, s.tls)
	if _, err := conn.Write(body); err != nil {
		return digest, err
	}
	if err := conn.CloseWrite(); err != nil {
		return digest, err
	}
	said, err := io.ReadAll(conn)
	if err != nil {
		return digest, err
	}
	if want := (wire.Receipt{Digest: digest, Bytes: objectSize}).Line(); string(said) != want {
		return digest, saidOtherwise(string(said))
	}
	return digest, nil
}

// saidOtherwise is an answer that is no receipt of the object.
func saidOtherwise(said string) error {
	switch {
	case said == "":
		return errors.New("closed without a receipt")
	case strings.HasPrefix(said, "stored "):
		return errors.New("the receipt of another object")
	}
	return fmt.Errorf("the gateway said %q", said)
}

// authority is the certificate of all gateways, which signed itself.
type authority struct{ certificate, key []byte }

func newAuthority() (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: gatewayName}, DNSNames: []string{gatewayName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(7 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return authority{}, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return authority{}, err
	}
	return authority{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}, nil
}
