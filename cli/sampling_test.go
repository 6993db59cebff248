// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// sampledSite is a Site whose instrument a consumer may ask for more, with a
// gateway and a feed server.
type sampledSite struct {
	t        *testing.T
	nats     *testenv.NATSServer
	registry testenv.Registry
	gateway  *testenv.Gateway
	endpoint *testenv.FeedServer
	to, path string
	status   jetstream.KeyValue
}

// requestsLast is how long a request of a consumer lasts here: not a minute.
const requestsLast = 15 * time.Second

// newSampledSite has a listener for objects, and one for the datagrams of each channel.
func newSampledSite(t *testing.T, channels ...string) *sampledSite {
	t.Helper()
	minio, nats := testenv.SharedMinIO(t, testenv.MinIOOptions{}), testenv.NATS(t, testenv.NATSOptions{Domain: "hub"})
	bucket := testenv.BucketName()
	js := nats.JetStream(t)
	testenv.CreateSite(t, js, "hub")
	if _, err := js.UpdateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: wire.RequestBucket("hub"), Storage: jetstream.FileStorage, History: 1, TTL: requestsLast}); err != nil {
		t.Fatal(err)
	}
	minio.Bucket(t, bucket)
	ports := make([]int, 2+len(channels))
	for i := range ports {
		ports[i] = testenv.FreePort(t)
	}
	slices.Sort(ports)
	port, path := ports[0], ports[len(ports)-1]
	spectra := testenv.InstrumentTCP("spectra", port)
	spectra.Listeners[0].Framing = wire.FramingLengthPrefixed
	for i, channel := range channels {
		spectra.Listeners = append(spectra.Listeners, wire.ListenerEntry{Protocol: wire.ProtocolUDP, Port: uint16(ports[1+i]), Channel: channel})
	}
	s := &sampledSite{t: t, nats: nats, to: testenv.Loopback(port), path: testenv.Loopback(path)}
	s.gateway = testenv.StartGateway(t, testenv.GatewayOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: bucket, Instruments: []wire.InstrumentEntry{spectra},
		Flags: []string{"--ports", fmt.Sprintf("%d-%d", port, path-1), "--link-probe-port", fmt.Sprint(path)}})
	testenv.StartArchivist(t, testenv.ArchivistOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: bucket})
	spectra.Gateway = "north"
	s.registry = testenv.Registry{Revision: 1, Instruments: []wire.InstrumentEntry{spectra},
		Feeds: []wire.FeedEntry{{UID: "all", Feed: "all", Notices: wire.NoticeStream("hub"), Instruments: []string{"spectra"}}},
		Consumers: []wire.ConsumerEntry{{UID: "browser", Consumer: "browser", Feed: "all", Flow: wire.FlowEntry{Mode: wire.FlowAll},
			Delivery: wire.DeliveryWebSocket, Tokens: []wire.TokenHash{wire.HashToken([]byte("salt"), "browsers-token")}}}}
	var err error
	if s.status, err = js.KeyValue(t.Context(), wire.StatusBucket("hub")); err != nil {
		t.Fatal(err)
	}
	s.sample(60_000, true)
	s.endpoint = testenv.StartFeedServer(t, testenv.FeedServerOptions{Site: "hub", NATS: nats})
	return s
}

// sample changes the Instrument.
func (s *sampledSite) sample(millis int64, mayAsk bool, channels ...wire.ChannelSampling) {
	s.t.Helper()
	s.registry.Revision++
	s.registry.Instruments[0].Revision = s.registry.Revision
	s.registry.Instruments[0].Sampling = &wire.SamplingEntry{ConsumersMayAsk: mayAsk, MinIntervalMillis: 500,
		Channels: append([]wire.ChannelSampling{{State: wire.SamplingObserving, IntervalMillis: millis}}, channels...)}
	s.nats.Declare(s.t, "hub", s.registry)
}

// ask asks for an interval as a browser's page does, and returns the answer.
func (s *sampledSite) ask(method, query, body string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.endpoint.Address()+"/feeds/all/sampling?consumer=browser"+query, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer browsers-token")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// says waits until the gateway's report is as it should be.
func (s *sampledSite) says(what string, is func(wire.SenderStatus) bool) {
	s.t.Helper()
	waitFor(s.t, func() error {
		e, err := s.status.Get(s.t.Context(), wire.SenderStatusKey("spectra", "north-0"))
		if err != nil {
			return err
		}
		status, err := wire.Decode[wire.SenderStatus](e.Value())
		if err == nil && !is(status) {
			err = fmt.Errorf("%s: %s", what, e.Value())
		}
		return err
	})
}

// asked and followed, by whom and how often.
func obeys(millis int64, by string) func(wire.SenderStatus) bool {
	return func(s wire.SenderStatus) bool {
		return len(s.Asked) == 1 && s.Asked[0].IntervalMillis == millis && s.Asked[0].By == by &&
			s.Sampling != nil && len(s.Sampling.Obeys) == 1 && s.Sampling.Obeys[0].IntervalMillis == millis
	}
}

// TestSampling: what the Instrument says, and what a consumer asks for, reaches the
// instrument in the field, which then observes so; the Site knows what is asked,
// done and achieved, and how the path is.
func TestSampling(t *testing.T) {
	s := newSampledSite(t)
	watched, rate := t.TempDir(), filepath.Join(t.TempDir(), "rate")
	stop := service(t, "--to", s.to, "--framing", "length-prefixed", "--watch", watched, "--queue", filepath.Join(t.TempDir(), "queue"),
		"--settle", "0", "--scan-interval", "20ms", "--heartbeat", "500ms", "--link-probe", s.path, "--link-probe-interval", "100ms",
		"--sample-command", `echo "$SUBSTORM_SAMPLING_STATE $SUBSTORM_SAMPLING_INTERVAL" > `+rate+`.tmp && mv `+rate+`.tmp `+rate)
	does := func(want string) {
		t.Helper()
		waitFor(t, func() error {
			if text, err := os.ReadFile(rate); err != nil || string(text) != want+"\n" {
				return fmt.Errorf("the instrument observes %q, %v; want %q", text, err, want)
			}
			return nil
		})
	}
	does("Observing 60")
	s.says("what is declared is obeyed", obeys(60_000, ""))
	begin := time.Now()
	s.sample(5000, true)
	does("Observing 5")
	t.Logf("what changed in the registry was done within %v", time.Since(begin).Round(time.Millisecond))

	status, text := s.ask(http.MethodPost, "", `{"instrument": "spectra", "interval": "500ms"}`)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	begin = time.Now()
	does("Observing 0.5")
	t.Logf("what a consumer asked for was done within %v", time.Since(begin).Round(time.Millisecond))
	s.says("the consumer's word is obeyed", obeys(500, "browser"))
	does("Observing 5") // it is not renewed
	s.says("it has lapsed", obeys(5000, ""))
	if status, text := s.ask(http.MethodPost, "", `{"instrument": "spectra", "interval": "2s"}`); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	does("Observing 2")
	if status, text := s.ask(http.MethodDelete, "&instrument=spectra", ""); status != http.StatusNoContent {
		t.Fatalf("%d %s", status, text)
	}
	does("Observing 5")
	s.sample(5000, false)
	waitFor(t, func() error {
		if status, text := s.ask(http.MethodPost, "", `{"instrument": "spectra", "interval": "2s"}`); status != http.StatusForbidden || !strings.Contains(text, "consumerRequests") {
			return fmt.Errorf("%d %s", status, text)
		}
		return nil
	})

	// An observation each second, by its files' times; the last one is recent.
	first := time.Now().Add(time.Minute)
	for i := range 11 {
		path := filepath.Join(watched, fmt.Sprint("spectrum-", i))
		if err := os.WriteFile(path+".tmp", fmt.Append(nil, "spectrum ", i), 0o600); err != nil {
			t.Fatal(err)
		}
		at := first.Add(time.Duration(i) * time.Second)
		if err := os.Chtimes(path+".tmp", at, at); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".tmp", path); err != nil {
			t.Fatal(err)
		}
	}
	s.says("an observation each second is achieved", func(s wire.SenderStatus) bool {
		return s.Sampling != nil && len(s.Sampling.Achieved) == 1 && time.Duration(s.Sampling.Achieved[0].Interval) == time.Second && obeys(5000, "")(s)
	})
	s.says("the path is measured", func(s wire.SenderStatus) bool {
		return s.LinkProbe != nil && s.LinkProbe.Answered > 0 && s.LinkProbe.Delay != nil && s.LinkProbe.Delay.Min > 0
	})
	stop()
}
