// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// TestChannels: two channels of datagrams are switched on and off, and set to rates of
// their own, by commands; the gateway says of each what is achieved.
func TestChannels(t *testing.T) {
	s := newSampledSite(t, "burst", "dark")
	set := t.TempDir()
	for _, w := range s.registry.Instruments[0].Listeners[1:] {
		observe(t, int(w.Port), filepath.Join(set, w.Channel))
	}
	service(t, "--to", s.to, "--framing", "length-prefixed", "--watch", t.TempDir(), "--queue", filepath.Join(t.TempDir(), "queue"), "--heartbeat", "500ms",
		"--sample-command", `test -z "$SUBSTORM_SAMPLING_CHANNEL" || { f='`+set+`'/"$SUBSTORM_SAMPLING_CHANNEL"; echo "$SUBSTORM_SAMPLING_STATE $SUBSTORM_SAMPLING_INTERVAL" > "$f.new" && mv "$f.new" "$f"; }`)
	on, off := wire.SamplingObserving, wire.SamplingPaused
	achieves := func(what string, is func(burst, dark time.Duration) bool) {
		t.Helper()
		waitFor(t, func() error {
			e, err := s.status.Get(t.Context(), wire.InstrumentStatusKey("spectra", "north-0"))
			if err != nil {
				return err
			}
			status, err := wire.Decode[wire.InstrumentStatus](e.Value())
			if err != nil {
				return err
			}
			by := map[string]time.Duration{}
			for _, a := range status.Achieved {
				by[a.Channel] = time.Duration(a.Interval)
			}
			if !is(by["burst"], by["dark"]) {
				return fmt.Errorf("%s: %s", what, e.Value())
			}
			return nil
		})
	}
	s.sample(60_000, true, wire.ChannelSampling{Channel: "burst", State: on, IntervalMillis: 50}, wire.ChannelSampling{Channel: "dark", State: off, IntervalMillis: 1000})
	achieves("one of two is on", func(burst, dark time.Duration) bool { return burst >= 49*time.Millisecond && dark == 0 })
	// A consumer may ask for more of a channel that is on, not of one that is off.
	if status, text := s.ask("POST", "", `{"instrument": "spectra", "channel": "dark", "interval": "1s"}`); status != 403 {
		t.Errorf("asked for a channel that is off: %d %s", status, text)
	}
	s.sample(60_000, true, wire.ChannelSampling{Channel: "burst", State: on, IntervalMillis: 50}, wire.ChannelSampling{Channel: "dark", State: on, IntervalMillis: 1000})
	achieves("both are on", func(burst, dark time.Duration) bool {
		return burst >= 49*time.Millisecond && dark >= 999*time.Millisecond && dark > 5*burst
	})
	s.sample(60_000, true, wire.ChannelSampling{Channel: "burst", State: off, IntervalMillis: 50}, wire.ChannelSampling{Channel: "dark", State: on, IntervalMillis: 1000})
	achieves("the other is on", func(burst, dark time.Duration) bool { return burst > 5*time.Second && dark >= 999*time.Millisecond })
}

// observe is an instrument that sends a datagram as often as a file says.
func observe(t *testing.T, port int, file string) {
	t.Helper()
	conn, err := net.Dial("udp", testenv.Loopback(port))
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-stopped; conn.Close() })
	go func() {
		defer close(stopped)
		for pause := 10 * time.Millisecond; ; {
			select {
			case <-stop:
				return
			case <-time.After(pause):
			}
			pause = 10 * time.Millisecond
			text, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			state, seconds, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
			if d, err := time.ParseDuration(seconds + "s"); err == nil && state == wire.SamplingObserving {
				_, _ = conn.Write([]byte("48123.4 -12.9\n"))
				pause = d
			}
		}
	}()
}
