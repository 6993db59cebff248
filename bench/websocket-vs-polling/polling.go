// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/bench/internal/fanout"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

//go:embed page.html
var page []byte

// polls is the peer: long polling, as a script of a site does it. A request waits
// until there are messages behind the one that it names, and is answered with all
// of them. The newest are kept in memory.
type polls struct {
	address string

	mu       sync.Mutex
	kept     []poll // in order
	number   int
	arrived  chan struct{}
	channels func(string) bool
}

type poll struct {
	number  int
	message wire.FeedTelemetry
}

// keepPolls is how many messages wait for a page that is slow, and maxAnswer how
// many go into an answer.
const (
	keepPolls = 4096
	maxAnswer = 64
	pollWait  = 30 * time.Second
)

// startPolls serves the page, and long polling of the channels that are wanted.
func startPolls(l testing.TB, js jetstream.JetStream, wanted func(string) bool) (*polls, error) {
	p := &polls{address: testenv.Loopback(testenv.FreePort(l)), arrived: make(chan struct{}), channels: wanted}
	ctx, cancel := context.WithCancel(context.Background())
	c, err := js.OrderedConsumer(ctx, wire.ObservationStream(fanout.SiteCode), jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
	if err != nil {
		cancel()
		return nil, err
	}
	following, err := c.Consume(p.take)
	if err != nil {
		cancel()
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /poll", p.answer)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	})
	server := &http.Server{Addr: p.address, Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.ListenAndServe() }()
	l.Cleanup(func() { following.Stop(); cancel(); _ = server.Close() })
	return p, nil
}

func (p *polls) take(m jetstream.Msg) {
	_, instrument, channel, err := wire.ParseObservationSubject(m.Subject())
	if err != nil || !p.channels(channel) {
		return
	}
	t := wire.FeedTelemetry{Instrument: instrument, Channel: channel}
	for d, err := range wire.Datagrams(m.Data()) {
		if err != nil {
			return
		}
		t.Datagrams = append(t.Datagrams, wire.FeedDatagram{ReceivedAt: d.ReceivedAt, Source: d.Source.String(), Payload: slices.Clone(d.Payload)})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.number++
	p.kept = append(p.kept, poll{p.number, t})
	if len(p.kept) > keepPolls {
		p.kept = slices.Delete(p.kept, 0, len(p.kept)-keepPolls)
	}
	close(p.arrived)
	p.arrived = make(chan struct{})
}

// after returns what is behind a number, and what is closed when there is more.
func (p *polls) after(number int) ([]poll, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, _ := slices.BinarySearchFunc(p.kept, number+1, func(k poll, n int) int { return k.number - n })
	return slices.Clone(p.kept[i:min(len(p.kept), i+maxAnswer)]), p.arrived
}

func (p *polls) answer(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.Atoi(r.URL.Query().Get("after"))
	if err != nil {
		http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), pollWait)
	defer cancel()
	found, more := p.after(number)
	for len(found) == 0 {
		select {
		case <-ctx.Done():
			found = []poll{}
		case <-more:
		}
		if ctx.Err() != nil {
			break
		}
		found, more = p.after(number)
	}
	answer := struct {
		After    int                  `json:"after"`
		Messages []wire.FeedTelemetry `json:"messages"`
	}{After: number, Messages: []wire.FeedTelemetry{}}
	for _, f := range found {
		answer.After, answer.Messages = f.number, append(answer.Messages, f.message)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}
