// SPDX-License-Identifier: Apache-2.0

// Package load sends objects as fast as they are received, from a process of its
// own, over TCP or straight into a bucket. Each object differs in its last
// bytes, and its digest is known for next to nothing: every receipt is checked.
package load

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/bench/internal/receiver"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// Answer is what a receiver says when it has an object.
type Answer string

// The answers.
const (
	// Receipt: the gateway's line, with the digest.
	Receipt Answer = "receipt"
	// Word: a line with the number of bytes.
	Word Answer = "word"
	// Close: nothing, the connection ends.
	Close Answer = "close"
)

// Order is what to send.
type Order struct {
	// Address to send to over TCP, and how it answers.
	Address string `json:"address,omitempty"`
	Answer  Answer `json:"answer,omitempty"`
	// Objects is a bucket to put into instead.
	Objects *receiver.Bucket `json:"objects,omitempty"`

	Size    int `json:"size"`
	Senders int `json:"senders"`
	// Duration after which no sender begins another object; each sends one at least.
	Duration time.Duration `json:"duration"`

	// InFlight makes each sender one connection with length-prefixed objects; so many of them may wait for their receipts.
	InFlight int `json:"inFlight,omitempty"`

	// Rate makes objects due at random instants (Poisson), so many a second on
	// average, whether or not earlier ones were received; then each sender waits
	// for the next one that is due.
	Rate float64 `json:"rate,omitempty"`
	// Seed tells the instants of one order from those of another with the same size and rate.
	Seed uint64 `json:"seed,omitempty"`
	// Hold: each sender sends all but the end of one object and waits for the
	// others; then all of them end theirs. With Size 0 they are silent for
	// Duration, and leave.
	Hold bool `json:"hold,omitempty"`
	// Process is the receiver's: Hold waits until it has accepted all, or
	// accepts no more.
	Process int `json:"process,omitempty"`

	// Digests has the outcome tell which objects have their receipts, also where it has
	// an error (not with Hold).
	Digests bool `json:"digests,omitempty"`
	// All are carried out at the same time, in place of what is said above.
	All []Order `json:"all,omitempty"`
}

// Outcome is what became of it.
type Outcome struct {
	Objects int64 `json:"objects"`
	// BytesPerSecond is the sum over senders, each over its own time.
	BytesPerSecond float64 `json:"bytesPerSecond"`
	// P50 and P99, with Rate only: how long answers took since objects were due, in milliseconds.
	P50 float64 `json:"p50,omitempty"`
	P99 float64 `json:"p99,omitempty"`
	// Open is how many files and sockets Process had open while all were held.
	Open  int    `json:"open,omitempty"`
	Error string `json:"error,omitempty"`
	// Digests of the objects that have their receipts, see Order.
	Digests []wire.Digest `json:"digests,omitempty"`
}

const environment = "SUBSTORM_BENCH_LOAD"

// Generator is a process that sends.
type Generator struct {
	worker *process.Worker[Order, Outcome]
}

// Start starts a generator on these cores; nil for all.
func Start(l testing.TB, cpus []int) *Generator {
	return &Generator{process.StartWorker[Order, Outcome](l, environment, cpus)}
}

// Send carries an order out. An error is the first object's that was not received.
func (g *Generator) Send(o Order) (Outcome, error) {
	out, err := g.worker.Do(o)
	if err == nil && out.Error != "" {
		err = errors.New(out.Error)
	}
	return out, err
}

// Main is called early by a benchmark's main: in a child it takes orders until
// its standard input ends, and does not return.
func Main() { process.Work(environment, carryOut) }

func carryOut(o Order) Outcome {
	put := func(b *body) error { return overTCP(o, b) }
	if o.Objects != nil {
		store, err := objectstore.Open(o.Objects.Config())
		if err != nil {
			return Outcome{Error: err.Error()}
		}
		put = func(b *body) error { return into(store, b) }
	}
	switch {
	case len(o.All) > 0:
		return together(o.All)
	case o.Hold:
		return hold(o)
	case o.InFlight > 0:
		return pipelined(o)
	case o.Rate > 0:
		return atRate(o, put)
	default:
		return flatOut(o, put)
	}
}

// together carries out orders at the same time. Objects, BytesPerSecond and Digests of the outcome are those of all orders, and Error is the error
// of one of them.
func together(orders []Order) (all Outcome) {
	var mu sync.Mutex
	var running sync.WaitGroup
	for _, o := range orders {
		running.Go(func() {
			out := carryOut(o)
			mu.Lock()
			defer mu.Unlock()
			all.Objects += out.Objects
			all.BytesPerSecond += out.BytesPerSecond
			all.Error = cmp.Or(all.Error, out.Error)
			all.Digests = append(all.Digests, out.Digests...)
		})
	}
	running.Wait()
	return all
}

// flatOut sends as fast as objects are received.
func flatOut(o Order, put func(*body) error) Outcome {
	var out Outcome
	var mu sync.Mutex
	var senders sync.WaitGroup
	for range o.Senders {
		b := newBody(o.Size)
		senders.Go(func() {
			begin, n := time.Now(), 0
			for n == 0 || time.Since(begin) < o.Duration {
				b.next()
				if err := put(b); err != nil {
					mu.Lock()
					defer mu.Unlock()
					out.Error = err.Error()
					return
				}
				n++
				if o.Digests {
					mu.Lock()
					out.Digests = append(out.Digests, b.digest)
					mu.Unlock()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			out.Objects += int64(n)
			out.BytesPerSecond += float64(n) * float64(o.Size) / time.Since(begin).Seconds()
		})
	}
	senders.Wait()
	return out
}

// body is an object: noise, and a unique number at its end.
type body struct {
	data []byte
	// prefix is the state of the digest before the number.
	prefix hash.Cloner
	digest wire.Digest
}

const numberSize = 16

var (
	number atomic.Uint64
	salt   = rand.Uint64()
)

func newBody(size int) *body {
	b := &body{data: make([]byte, size)}
	var seed [32]byte
	_, _ = rand.NewChaCha8(seed).Read(b.data)
	state := sha256.New()
	state.Write(b.data[:size-numberSize])
	b.prefix = state.(hash.Cloner)
	return b
}

func (b *body) next() {
	tail := b.data[len(b.data)-numberSize:]
	binary.BigEndian.PutUint64(tail, salt)
	binary.BigEndian.PutUint64(tail[8:], number.Add(1))
	state, err := b.prefix.Clone()
	if err != nil {
		panic(err) // SHA-256 of the standard library always clones
	}
	_, _ = state.Write(tail)
	b.digest = wire.Digest(state.Sum(nil))
}

// overTCP sends an object over a connection of its own and waits for the answer.
func overTCP(o Order, b *body) error {
	conn, err := net.Dial("tcp", o.Address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(b.data); err != nil {
		return err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	said, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	return check(o.Answer, string(said), b.digest, len(b.data))
}

// check says what is wrong with an answer to an object of so many bytes.
func check(answer Answer, said string, digest wire.Digest, size int) error {
	want := ""
	switch answer {
	case Receipt:
		want = wire.Receipt{Digest: digest, Bytes: int64(size)}.Line()
	case Word:
		want = fmt.Sprintf("%s bytes=%d\n", receiver.Done, size)
	case Close:
	}
	if said != want {
		return fmt.Errorf("the receiver said %q, want %q", said, strings.TrimSpace(want))
	}
	return nil
}

// into puts an object into a bucket, as cheaply as minio-go can: one request, its
// digest known.
func into(store objectstore.Store, b *body) error {
	return store.Put(context.Background(), "alone/"+b.digest.String(), bytes.NewReader(b.data), int64(len(b.data)),
		objectstore.PutOptions{Digest: b.digest})
}
