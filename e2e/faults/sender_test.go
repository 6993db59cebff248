// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// sender is the field side of one pool: a camera over TCP, a program that puts files
// under names over HTTP, a magnetometer over UDP. An object is sent until it has its
// receipt, and noted then.
type sender struct {
	t    *testing.T
	pool *pool
	stop chan struct{}
	all  sync.WaitGroup

	mu sync.Mutex
	// receipted objects by instrument and digest, with the name of those that have one.
	receipted map[string]map[wire.Digest]string
	// datagrams is how many were sent: those with the numbers from 0 on.
	datagrams uint64
}

// Between two objects, and between two datagrams, of one sender, and before it sends an object again that got no receipt.
const (
	objectInterval   = 100 * time.Millisecond
	datagramInterval = 10 * time.Millisecond
	againInterval    = 200 * time.Millisecond
)

func startSender(t *testing.T, p *pool) *sender {
	s := &sender{t: t, pool: p, stop: make(chan struct{}), receipted: map[string]map[wire.Digest]string{p.camera(): {}, p.web(): {}}}
	for worker := range uint64(2) {
		s.all.Go(func() { s.sendObjects(p.camera(), worker, s.sendTCP) })
		s.all.Go(func() { s.sendObjects(p.web(), worker, s.sendHTTP) })
	}
	s.all.Go(s.sendDatagrams)
	return s
}

// finish returns when each object that was begun has its receipt.
func (s *sender) finish() {
	close(s.stop)
	s.all.Wait()
}

func (s *sender) ended() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// objectOf has the size of what instruments send: most go into packs.
func objectOf(instrument string, worker, n uint64) []byte {
	size := []int{900, 3000, 20_000, 70_000, 300_000}[n%5]
	key := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", instrument, worker, n))
	b := make([]byte, size+int(n%97))
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

func (s *sender) sendObjects(instrument string, worker uint64, send func(object []byte, name string) error) {
	for n := uint64(0); !s.ended(); n++ {
		object, name := objectOf(instrument, worker, n), ""
		if instrument == s.pool.web() {
			name = fmt.Sprintf("%d/%06d.bin", worker, n)
		}
		if !s.sendUntilReceipt(instrument, name, object, send) {
			return
		}
		time.Sleep(objectInterval)
	}
}

func (s *sender) sendUntilReceipt(instrument, name string, object []byte, send func([]byte, string) error) bool {
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(againInterval) {
		if err = send(object, name); err == nil {
			s.mu.Lock()
			s.receipted[instrument][sha256.Sum256(object)] = name
			s.mu.Unlock()
			return true
		}
	}
	s.t.Errorf("%s %s gets no receipt within %v: %v", instrument, name, patience, err)
	return false
}

func (s *sender) sendTCP(object []byte, _ string) error {
	return testenv.SendObject(s.pool.tcp, object)
}

var client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// sendHTTP returns nil for 201 and 200 with the digest of what was sent.
func (s *sender) sendHTTP(object []byte, name string) error {
	url := fmt.Sprintf("http://%s/in/%s/%s", testenv.Loopback(s.pool.http), s.pool.web(), name)
	req, err := http.NewRequest(http.MethodPut, url, bytes.NewReader(object))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(resp.Body)
	sum := sha256.Sum256(object)
	switch {
	case resp.StatusCode == http.StatusConflict:
		s.t.Errorf("%s: the name holds other bytes, which nobody sent: %s", url, said)
		return nil
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated:
		return fmt.Errorf("%s: %s", resp.Status, said)
	case resp.Header.Get("Repr-Digest") != "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":":
		return fmt.Errorf("%s with the digest %q", resp.Status, resp.Header.Get("Repr-Digest"))
	}
	return nil
}

// sendDatagrams sends numbered datagrams. There are no receipts for them.
func (s *sender) sendDatagrams() {
	conn, err := net.Dial("udp", testenv.Loopback(s.pool.udp))
	if err != nil {
		s.t.Error(err)
		return
	}
	defer conn.Close()
	for !s.ended() {
		// An error is about an earlier datagram, which no process received; this one is not sent then.
		if _, err := conn.Write(datagramOf(s.pool.mag(), s.datagrams)); err == nil {
			s.datagrams++
		}
		time.Sleep(datagramInterval)
	}
}

// datagramOf says in its payload whose it is, and its number.
func datagramOf(instrument string, number uint64) []byte {
	b := make([]byte, 120)
	copy(b, instrument)
	return binary.BigEndian.AppendUint64(b, number)
}

// numberOf returns the number of an instrument's datagram.
func numberOf(instrument string, payload []byte) (uint64, error) {
	if head := len(payload) - 8; head > 0 {
		if number := binary.BigEndian.Uint64(payload[head:]); bytes.Equal(payload, datagramOf(instrument, number)) {
			return number, nil
		}
	}
	return 0, fmt.Errorf("%s never sent %x", instrument, payload)
}
