// SPDX-License-Identifier: Apache-2.0

// Package crowd is many consumers in a process of its own: fast ones that measure
// what they get and when, ones that never read, and ones behind a thin link.
package crowd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/substorm/substorm/bench/internal/process"
)

// Kind is how a consumer reads.
type Kind string

// The kinds of consumers.
const (
	// Fast reads as soon as there is something, and measures.
	Fast Kind = "fast"
	// Stalled connects and never reads.
	Stalled Kind = "stalled"
	// Thin reads ThinRate bytes a second.
	Thin Kind = "thin"
)

// ThinRate is what UARC's slow link carried, in bytes a second.
const ThinRate = 25_000

// Protocol is how messages come.
type Protocol string

// The protocols, all over WebSocket.
const (
	// Substorm: frames of feed-server.
	Substorm Protocol = "substorm"
	// Whole: each message is a sample; nchan sends so.
	Whole Protocol = "whole"
	// NATS: the protocol of NATS in binary messages.
	NATS Protocol = "nats"
)

// Consumer is one of the crowd.
type Consumer struct {
	URL string `json:"url"`
	// Token is shown where it is not empty.
	Token string `json:"token,omitempty"`
	Kind  Kind   `json:"kind"`
	// Subject that is subscribed to over NATS.
	Subject string `json:"subject,omitempty"`
}

// Order is what to do next.
type Order struct {
	// Open, of so many consumers more, ends once all of them are connected. After is
	// the number of the last sample that was published before.
	Open     []Consumer `json:"open,omitempty"`
	After    uint64     `json:"after,omitempty"`
	Protocol Protocol   `json:"protocol,omitempty"`
	// Begin counts and measures from now on.
	Begin bool `json:"begin,omitempty"`
	// Until ends once the fast consumers have the sample of that number, or after
	// Patience, with what they got.
	Until    uint64        `json:"until,omitempty"`
	Patience time.Duration `json:"patience,omitempty"`
	// Close ends all connections.
	Close bool `json:"close,omitempty"`
}

// Outcome is what became of it.
type Outcome struct {
	// Samples and Bytes of them that the fast consumers got since Begin, and how many
	// of the samples up to Until they did not get, or got twice.
	Samples  int64 `json:"samples"`
	Bytes    int64 `json:"bytes"`
	Lost     int64 `json:"lost"`
	Repeated int64 `json:"repeated"`
	// Wire is the bytes of all that they read.
	Wire int64 `json:"wire"`
	// Common is the most that any sample took to the first of the fast consumers, in
	// milliseconds: what all of them waited.
	Common float64 `json:"common"`
	// P50, P99 and Max from the sample's time to its arrival, in milliseconds.
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	// Seconds from Begin to the last sample.
	Seconds float64 `json:"seconds"`
	// Ended are connections that the server ended.
	Ended int64  `json:"ended"`
	Error string `json:"error,omitempty"`
}

// sampleHeader is what a sample begins with: its number and its time.
const sampleHeader = 16

// Sample writes the number and the time into the beginning of a payload.
func Sample(payload []byte, number uint64, at time.Time) {
	binary.BigEndian.PutUint64(payload, number)
	binary.BigEndian.PutUint64(payload[8:], uint64(at.UnixNano()))
}

func parseSample(payload []byte) (number uint64, at time.Time, err error) {
	if len(payload) < sampleHeader {
		return 0, time.Time{}, fmt.Errorf("a sample of %d bytes", len(payload))
	}
	return binary.BigEndian.Uint64(payload), time.Unix(0, int64(binary.BigEndian.Uint64(payload[8:]))), nil
}

const environment = "SUBSTORM_BENCH_CROWD"

// Crowd is the process.
type Crowd struct {
	worker *process.Worker[Order, Outcome]
}

// Start starts an empty crowd.
func Start(l testing.TB) *Crowd {
	return &Crowd{process.StartWorker[Order, Outcome](l, environment, nil)}
}

// Do carries an order out.
func (c *Crowd) Do(o Order) (Outcome, error) {
	out, err := c.worker.Do(o)
	if err == nil && out.Error != "" {
		err = errors.New(out.Error)
	}
	return out, err
}

// Close ends all connections.
func (c *Crowd) Close() { _, _ = c.Do(Order{Close: true}) }

// Main is called early by a benchmark's main: in a child it takes orders until
// its standard input ends, and does not return.
func Main() {
	a := &audience{}
	process.Work(environment, func(o Order) Outcome {
		out, err := a.do(o)
		if err != nil {
			out.Error = err.Error()
		}
		return out
	})
}
