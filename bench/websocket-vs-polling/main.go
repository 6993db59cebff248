// SPDX-License-Identifier: Apache-2.0

// Command websocket-vs-polling repeats the OASIS thesis' four experiments in Chromium and with a Go client: memory, bytes on the wire, throughput, delay.
package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/bench/internal/browser"
	"github.com/substorm/substorm/bench/internal/crowd"
	"github.com/substorm/substorm/bench/internal/fanout"
	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/internal/wire"
)

// The channels, and who reads them.
const (
	// steady has a sample a second: memory.
	steady = "steady"
	// flushed has so many samples as are counted: bytes on the wire.
	flushed = "flushed"
	// full has as many as go: throughput.
	full = "full"
	// paced-<n> have a sample each n tenths of a hertz: delay.
	paced = "paced-"
)

// The ways that a page asks.
const (
	webSocket = "websocket"
	events    = "events"
	polling   = "polling"
)

var ways = []string{webSocket, events, polling}

// processorProbe and memoryProbe are the sizes of OASIS's samples, in bytes.
const (
	processorProbe = 140
	memoryProbe    = 236
)

// rounds of what is short. Memory and delay take a quarter of an hour, once.
var rounds = report.Rounds(5)

// shortVariable makes memory and delay short, to try the program out.
const shortVariable = "SUBSTORM_BENCH_SHORT"

func main() { lab.Run(run, crowd.Main) }

type bench struct {
	lab     *lab.Lab
	report  *report.Report
	site    *fanout.Site
	js      jetstream.JetStream
	browser *browser.Browser
	crowd   *crowd.Crowd
	polls   map[string]*polls
}

func run(l *lab.Lab) error {
	b := &bench{lab: l, report: report.New("websocket-vs-polling", rounds), polls: map[string]*polls{}, crowd: crowd.Start(l)}
	b.site = fanout.NewSite(l, consumers())
	b.js = b.site.JS
	for _, group := range groups() {
		p, err := startPolls(l, b.js, func(channel string) bool { return in(channel, group) })
		if err != nil {
			return err
		}
		b.polls[group] = p
	}
	var err error
	if b.browser, err = browser.Start(l); err != nil {
		return err
	}
	for _, experiment := range []func() error{b.bytesOnTheWire, b.throughput, b.memoryAndDelay} {
		if err := experiment(); err != nil {
			return err
		}
	}
	return b.report.Finish()
}

// groups are channels that a page reads together.
func groups() []string { return []string{steady, flushed, full, paced} }

func in(channel, group string) bool {
	return channel == group || group == paced && strings.HasPrefix(channel, paced)
}

// rates of the delay's channels, in tenths of a hertz.
const rates = 10

func pacedChannel(n int) string { return fmt.Sprintf("%s%d", paced, n) }

// consumers are one for each group and way of feed-server.
func consumers() []wire.ConsumerEntry {
	var all []wire.ConsumerEntry
	for _, group := range groups() {
		channels := []string{group}
		if group == paced {
			channels = nil
			for n := 1; n <= rates; n++ {
				channels = append(channels, pacedChannel(n))
			}
		}
		for way, delivery := range map[string]string{webSocket: wire.DeliveryWebSocket, events: wire.DeliveryServerSentEvents} {
			all = append(all, wire.ConsumerEntry{Consumer: consumer(group, way), Channels: channels, Flow: wire.FlowEntry{Mode: wire.FlowAll}, Delivery: delivery})
		}
	}
	return all
}

func consumer(group, way string) string { return strings.TrimSuffix(group, "-") + "-" + way }

// from is the URL that a page asks, for a group by a way; over is where a relay is
// that counts, or empty.
func (b *bench) from(group, way, over string) string {
	server, poll := b.site.Server.Address(), b.polls[group].address
	if over != "" {
		server, poll = over, over
	}
	switch way {
	case webSocket:
		return "ws://" + server + "/feeds/" + fanout.Feed + "/ws?consumer=" + consumer(group, way)
	case events:
		return "http://" + server + "/feeds/" + fanout.Feed + "/events?consumer=" + consumer(group, way)
	default:
		return "http://" + poll + "/poll"
	}
}

// open opens a page of a group. The page itself comes from where long polling
// does, so that that needs no permission of its own.
func (b *bench) open(group, way, over string) (*tab, error) {
	page := b.polls[group].address
	if over != "" && way == polling {
		page = over
	}
	t, err := open(b.browser, "http://"+page, way, b.from(group, way, over))
	if err == nil {
		time.Sleep(time.Second) // it connects
	}
	return t, err
}
