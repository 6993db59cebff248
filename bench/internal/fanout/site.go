// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/substorm/substorm/bench/internal/crowd"
	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// The names of what is served.
const (
	SiteCode   = "bench"
	Instrument = "mag-1"
	Feed       = "live"
)

// Site is a Site with one Feed of one public instrument, and feed-server in a process of its own.
type Site struct {
	NATS   *testenv.NATSServer
	Server *testenv.FeedServer
	JS     jetstream.JetStream
	// Supply publishes on the channel raw.
	Supply *Supply
}

// ConsumerName is the name of the n-th consumer.
func ConsumerName(n int) string { return fmt.Sprintf("c-%04d", n) }

// Flows are consumers over WebSocket with these flows, called ConsumerName of
// their index.
func Flows(flows []wire.FlowEntry) []wire.ConsumerEntry {
	all := make([]wire.ConsumerEntry, len(flows))
	for n, flow := range flows {
		all[n] = wire.ConsumerEntry{Consumer: ConsumerName(n), Flow: flow, Delivery: wire.DeliveryWebSocket}
	}
	return all
}

// NewSite starts a Site with consumers, of whom UID, Generation, Feed and
// MaxConnections are filled in.
func NewSite(l testing.TB, consumers []wire.ConsumerEntry) *Site {
	s := &Site{NATS: testenv.NATS(l, testenv.NATSOptions{})}
	s.JS = s.NATS.JetStream(l)
	testenv.CreateSite(l, s.JS, SiteCode)
	if err := widen(s.JS); err != nil {
		l.Fatal(err)
	}
	for i := range consumers {
		c := &consumers[i]
		c.UID, c.Generation, c.Feed, c.MaxConnections = "uid-"+c.Consumer, 1, Feed, 10
	}
	instrument := testenv.InstrumentUDP(Instrument, 4000)
	instrument.Access = &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}
	s.NATS.Declare(l, SiteCode, testenv.Registry{
		Revision:    1,
		Instruments: []wire.InstrumentEntry{instrument}, Consumers: consumers,
		Feeds: []wire.FeedEntry{{UID: "uid-feed", Generation: 1, Feed: Feed, Telemetry: wire.ObservationStream(SiteCode), Instruments: []string{Instrument}}},
	})
	s.Server = testenv.StartFeedServer(l, testenv.FeedServerOptions{Site: SiteCode, NATS: s.NATS})
	s.Supply = s.NewSupply("raw")
	return s
}

// NewSupply returns a supply for a channel.
func (s *Site) NewSupply(channel string) *Supply {
	return &Supply{js: s.JS, site: SiteCode, instrument: Instrument, channel: channel, source: nuid.Next()}
}

// holds is how much of a Site's telemetry there is space for, in bytes: more than
// websocket-vs-polling publishes in its ten seconds.
const holds = 2 << 30

// widen lets the stream of telemetry hold more than a test's.
func widen(js jetstream.JetStream) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return lab.Widen(ctx, js, wire.ObservationStream(SiteCode), holds)
}

// Consumer says where the n-th consumer of Flows connects.
func (s *Site) Consumer(n int, kind crowd.Kind) crowd.Consumer {
	return crowd.Consumer{URL: s.URL("ws", "ws", ConsumerName(n)), Kind: kind}
}

// URL of a consumer's endpoint: ws or events, with the scheme ws or http.
func (s *Site) URL(scheme, endpoint, consumer string) string {
	return scheme + "://" + s.Server.Address() + "/feeds/" + Feed + "/" + endpoint + "?consumer=" + consumer
}

// Behind waits until each of these consumers lags. Error: the name of one that does
// not, though it is slow.
func (s *Site) Behind(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, lagWithin)
	defer cancel()
	for {
		lags, err := s.lags(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(names, func(name string) bool { return lags[name] == 0 })
		if i < 0 {
			return nil
		}
		if sleepUntil(ctx, time.Now().Add(lagEach)) != nil {
			return fmt.Errorf("consumer %s is to be slow, and lags by nothing", names[i])
		}
	}
}

// lagWithin is how long a stalled consumer may take to show, which is looked for so
// often.
const (
	lagWithin = 20 * time.Second
	lagEach   = 250 * time.Millisecond
)

// lags are messages that consumers were not given yet, by consumer.
func (s *Site) lags(ctx context.Context) (map[string]float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Server.Metrics(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	all := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), `substorm_feed_lag_messages{consumer="`); ok {
			name, value, _ := strings.Cut(rest, `"} `)
			if all[name], err = strconv.ParseFloat(value, 64); err != nil {
				return nil, err
			}
		}
	}
	return all, lines.Err()
}

// Forget empties the stream of telemetry, so that its size bounds no run.
func (s *Site) Forget(ctx context.Context) error {
	stream, err := s.JS.Stream(ctx, wire.ObservationStream(SiteCode))
	if err != nil {
		return err
	}
	return stream.Purge(ctx)
}
