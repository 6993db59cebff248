// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// header returns the number in a header of what was taken.
func header(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("header %q", text)
	}
	return n
}

// A consumer of mode Latest that stalls gets the newest of each source when it resumes, and learns
// how many it did not get; messages from before the stall come first, and in order.
func TestLatest(t *testing.T) {
	l, _ := oneServer(t)
	l.announce("camera-2", 7) // before there was the consumer
	l.declare(wire.ConsumerEntry{Consumer: "display", Flow: wire.FlowEntry{Mode: wire.FlowLatest}})
	l.serve("pod-0")
	nc := l.connect("display")
	k := newTaken()
	var stalled atomic.Bool
	goesOn := make(chan struct{})
	consume(t, nc, wire.ConsumerStream(site, "display"), "display", k, 0, func(jetstream.Msg) bool {
		if stalled.Load() {
			select {
			case <-goesOn:
			case <-t.Context().Done():
			}
		}
		return true
	})
	testenv.Await(t, "the newest of before is given", func() bool { return slices.Contains(k.distinct("notice"), 7) })
	l.telemetry(mag, 0, 1)
	testenv.Await(t, "it flows", func() bool { return k.count("obs") == 1 })
	stalled.Store(true)
	for i := range 500 {
		l.telemetry(mag, 1+i*10, 10)
	}
	l.announce(camera, 1)
	testenv.Await(t, "all is put", func() bool {
		s, _, err := l.last("display", wire.ObservationSubject(site, mag, channel))
		return err == nil && strings.HasPrefix(s.Header.Get(wire.HeaderID), "gateway-0/incarnation-1/4991#")
	})
	close(goesOn)
	testenv.Await(t, "the newest is given", func() bool {
		return slices.Contains(k.distinct("obs"), 5000) && slices.Contains(k.distinct("notice"), 1)
	})
	got := k.all("obs")
	if !slices.IsSorted(got) || len(got) > 200 {
		t.Errorf("%d of 5001 datagrams were given: %v", len(got), got)
	}
	count, last := uint64(0), uint64(0)
	for _, h := range k.allHeaders() {
		if h.Get(wire.HeaderType) != wire.TypeTelemetry {
			continue
		}
		_, n, _ := strings.Cut(h.Get(wire.HeaderCount), "/")
		count, last = count+1, header(t, n)
		if h.Get(wire.HeaderDatagrams) != "1" || h.Get(wire.HeaderSource) != wire.EventSource(site, "gateway-0") || h.Get("Nats-Msg-Id") != "" {
			t.Errorf("headers %v", h)
		}
		header(t, h.Get(wire.HeaderReplaced))
		if header(t, h.Get(wire.HeaderSampled)) != 0 {
			t.Errorf("headers %v", h)
		}
	}
	if last != 5001 {
		t.Errorf("the last message says that it is number %d of 5001", last)
	}
	t.Logf("%d of 5001 datagrams were given", count)
}

// last returns the message that a consumer's stream has of a subject.
func (l *lab) last(consumer, subject string) (*jetstream.RawStreamMsg, wire.FeedToken, error) {
	l.t.Helper()
	s, err := l.js.Stream(l.t.Context(), wire.ConsumerStream(site, consumer))
	if err != nil {
		return nil, wire.FeedToken{}, err
	}
	m, err := s.GetLastMsgForSubject(l.t.Context(), wire.LiveSubject(site, consumer, subject))
	if err != nil {
		return nil, wire.FeedToken{}, err
	}
	token, err := wire.ParseFeedToken(m.Header.Get(wire.HeaderToken))
	return m, token, err
}

// Sampled are datagrams, not messages, and each interval has its newest.
func TestSample(t *testing.T) {
	const interval = 5 * time.Second
	l, _ := oneServer(t)
	l.declare(wire.ConsumerEntry{Consumer: "plot", NoNotices: true, Flow: wire.FlowEntry{Mode: wire.FlowSample, IntervalMillis: interval.Milliseconds()}})
	l.serve("pod-0")
	k := newTaken()
	consume(t, l.connect("plot"), wire.ConsumerStream(site, "plot"), "plot", k, 0, nil)
	testenv.Await(t, "somebody fills", func() bool { _, pod := l.status("plot"); return pod == "pod-0" })
	// Two hundred datagrams in each interval, as their own times say.
	began := time.Now().UTC().Truncate(interval).Add(-10 * interval)
	for i := range 200 {
		l.telemetryAt(mag, i*10, 10, began.Add(time.Duration(i)*10*interval/200), interval/200)
	}
	l.announce(camera, 1)
	testenv.Await(t, "the last interval is given", func() bool { return slices.Contains(k.distinct("obs"), 1999) })
	got := k.distinct("obs")
	var want []int
	for n := 199; n < 2000; n += 200 {
		want = append(want, n)
	}
	if !slices.Equal(got, want) || !slices.IsSorted(k.all("obs")) || k.count("notice") != 0 {
		t.Errorf("samples are %v, want the newest of each interval, %v", k.all("obs"), want)
	}
	sampled := uint64(0)
	for _, h := range k.allHeaders() {
		sampled += header(t, h.Get(wire.HeaderSampled)) + header(t, h.Get(wire.HeaderReplaced))
	}
	if n := int(sampled) + len(k.all("obs")); n != 2000 {
		t.Errorf("samples and what they stand for are %d, 2000 were sent", n)
	}
	testenv.Await(t, "the report says so", func() bool {
		s, _ := l.status("plot")
		return s.State == wire.StateFlowing && s.Dropped["Sampled"]+s.Messages >= 2000 && s.Gaps == 0
	})
}

// The bytes that a consumer is given a second are bounded, and it gets the newest message all the same.
func TestPaced(t *testing.T) {
	l, _ := oneServer(t)
	l.declare(wire.ConsumerEntry{Consumer: "thin", NoNotices: true, Flow: wire.FlowEntry{Mode: wire.FlowLatest, MaxBytesPerSecond: 4000}})
	l.serve("pod-0")
	k := newTaken()
	consume(t, l.connect("thin"), wire.ConsumerStream(site, "thin"), "thin", k, 0, nil)
	testenv.Await(t, "somebody fills", func() bool { _, pod := l.status("thin"); return pod == "pod-0" })
	began := time.Now()
	for i := range 600 {
		l.telemetry(mag, i, 1)
		time.Sleep(5 * time.Millisecond) // an instrument that sends faster than the consumer may be given
	}
	testenv.Await(t, "the newest is given", func() bool { return slices.Contains(k.distinct("obs"), 599) })
	took := time.Since(began)
	size := 0
	for _, h := range k.allHeaders() {
		for name, values := range h {
			size += len(name) + len(values[0])
		}
	}
	// A second's worth may go at once.
	if most := 4000 * (took.Seconds() + 1); float64(size) > most { // a slower reader may be given more
		t.Errorf("%d bytes of headers alone in %v, %d messages", size, took, len(k.all("obs")))
	}
	if !slices.IsSorted(k.all("obs")) {
		t.Errorf("given: %v", k.all("obs"))
	}
}

// A feed server that takes over resumes: at most each source's newest comes again, and nothing
// newest is missing. The same holds if NATS lost the stream, which is in memory, and the operator
// recreated it.
func TestFillerChanges(t *testing.T) {
	l, server := oneServer(t)
	entry := wire.ConsumerEntry{Consumer: "display", Flow: wire.FlowEntry{Mode: wire.FlowLatest}}
	l.declare(entry)
	first := l.serve("pod-0")
	k := newTaken()
	consume(t, l.connect("display"), wire.ConsumerStream(site, "display"), "display", k, 0, nil)
	testenv.Await(t, "somebody fills", func() bool { _, pod := l.status("display"); return pod == "pod-0" })
	number := 0
	send := func(count int) {
		for range count {
			l.announce(camera, number)
			l.telemetry(mag, number, 1)
			number++
		}
	}
	send(50)
	testenv.Await(t, "the newest is given", func() bool {
		return slices.Contains(k.distinct("notice"), 49) && slices.Contains(k.distinct("obs"), 49)
	})
	second := l.serve("pod-1")
	first.kill()
	send(50) // while no feed server fills
	testenv.Await(t, "the newest is given by another", func() bool {
		return slices.Contains(k.distinct("notice"), 99) && slices.Contains(k.distinct("obs"), 99)
	})
	again := 0
	for id, times := range k.times() {
		if again += times - 1; times > 2 {
			t.Errorf("%s was given %d times", id, times)
		}
	}
	if again > 2 {
		t.Errorf("%d came again, there are two sources", again)
	}

	server.Kill()
	server.Start()
	l.declareAgain("display")
	testenv.Await(t, "the newest of before is there again", func() bool {
		_, token, err := l.last("display", wire.NoticeSubject(site, camera))
		m, _, err2 := l.last("display", wire.ObservationSubject(site, mag, channel))
		return err == nil && err2 == nil && (token != wire.FeedToken{} || m.Header.Get(wire.HeaderToken) != "")
	})
	send(20)
	last := fmt.Sprint(number - 1)
	testenv.Await(t, "it goes on", func() bool {
		return slices.Contains(k.distinct("notice"), number-1) && slices.Contains(k.distinct("obs"), number-1)
	})
	t.Logf("the last is %s", last)
	second.stop()
}

// declareAgain recreates a consumer's stream and durable, as the operator does.
func (l *lab) declareAgain(consumer string) {
	l.t.Helper()
	l.mu.Lock()
	c := l.consumers[consumer]
	l.mu.Unlock()
	testenv.Await(l.t, "NATS answers", func() bool { _, err := l.js.AccountInfo(l.t.Context()); return err == nil })
	l.makeStreams(c)
}
