// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	site    = "test"
	gateway = "pool-0"
	camera  = "camera"
	sounder = "sounder"
)

// The test's own program, run again with these in its environment, is a gateway that is killed.
const (
	envURL         = "LEDGER_TEST_NATS"
	envDir         = "LEDGER_TEST_DIR"
	envIncarnation = "LEDGER_TEST_INCARNATION"
)

// An incarnation may have reported so many objects and datagrams to the test, and not yet sent them, when it is
// killed: one step of each of the four senders of a kind.
const (
	slackObjects   = 4
	slackDatagrams = 4 * 20
)

func TestMain(m *testing.M) {
	if os.Getenv(envURL) == "" {
		os.Exit(m.Run())
	}
	if err := live(os.Getenv(envURL), os.Getenv(envDir), os.Getenv(envIncarnation)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestKilled lets a gateway live several times and be killed at any moment, at times with the server away. The
// totals of what it received, completed by what the streams hold, are then exact, and all that was begun is
// accounted for.
func TestKilled(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	allowTelemetry(t, js)
	dir := t.TempDir()
	intents := map[string]intent{}
	incarnations := 8
	for i := range incarnations {
		incarnation := "incarnation-" + strconv.Itoa(i)
		length := 100*time.Millisecond + time.Duration(rand.IntN(1500))*time.Millisecond
		restarted := make(chan struct{})
		go func() {
			defer close(restarted)
			if i%3 == 1 { // the server goes, and comes back during this incarnation or the next
				time.Sleep(length / 2)
				server.Kill()
				time.Sleep(length / 4)
				server.Start()
			}
		}()
		intents[incarnation] = runIncarnation(t, server.URL(), dir, incarnation, length, i < incarnations-1)
		<-restarted
	}

	inStream := countStreams(t, js)
	entries := eventuallyFinal(t, server.URL(), js, dir, intents)
	for incarnation, told := range intents {
		checkIncarnation(t, incarnation, told, inStream[incarnation], entries, incarnation != "incarnation-"+strconv.Itoa(incarnations-1))
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0].Name() != "ended.json" {
		t.Errorf("files are left: %v", left)
	}
}

// allowTelemetry makes the stream of observations as large as no machine fills it in the time of the test: a full one holds
// up what it may have already, and the last incarnation with it.
func allowTelemetry(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	s, err := js.Stream(t.Context(), wire.ObservationStream(site))
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxBytes = 2 << 30
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// checkIncarnation compares what an incarnation said it would count, what the streams hold of it, and what the ledger says.
func checkIncarnation(t *testing.T, incarnation string, told intent, held wire.Totals, entries map[string]wire.LedgerEntry, killed bool) {
	t.Helper()
	of := func(instrument string) wire.Totals {
		var sum wire.Totals
		for _, day := range []wire.Day{wire.DayOf(time.Now().Add(-24 * time.Hour)), wire.DayOf(time.Now())} {
			sum = sum.Plus(entries[wire.LedgerKey(instrument, day, wire.StepReceived, gateway)].Incarnations[incarnation])
		}
		return sum
	}
	counted := of(camera).Plus(of(sounder))
	if counted.Incomplete || counted.Objects > held.Objects || counted.Datagrams > held.Datagrams || counted.Acknowledged > counted.Objects {
		t.Errorf("%s: received %+v, the streams hold %+v", incarnation, counted, held)
	}
	r := wire.Reconcile(map[string]wire.Totals{incarnation: counted}, map[string]wire.Totals{incarnation: held}, held)
	t.Logf("%s: datagrams read %d, received %d (%d counted), unknown %d, dropped %v; objects begun %d, received %d (%d counted), acknowledged %d, unfinished %v",
		incarnation, told.Read, r.Datagrams, counted.Datagrams, r.Unknown, r.Dropped, told.Begun, r.Objects, counted.Objects, r.Acknowledged, r.Unfinished)
	if r.Objects != held.Objects || r.ObjectBytes != held.ObjectBytes || r.Digest != held.Digest || r.Datagrams != held.Datagrams {
		t.Errorf("%s: received %+v in the end, the streams hold %+v", incarnation, r, held)
	}
	var atKill intent
	if killed {
		atKill = intent{Read: slackDatagrams, Begun: slackObjects}
	}
	accounted := r.Datagrams + r.Unknown + sum(r.Dropped)
	if accounted > told.Read || accounted+atKill.Read < told.Read {
		t.Errorf("%s: %d datagrams accounted for of %d that were read", incarnation, accounted, told.Read)
	}
	if d := sum(r.Dropped); d > told.Dropped || d+atKill.Read < told.Dropped {
		t.Errorf("%s: %d datagrams dropped, told %d", incarnation, d, told.Dropped)
	}
	ended := r.Objects + sum(r.Unfinished)
	if ended > told.Begun || ended+atKill.Begun < told.Begun {
		t.Errorf("%s: %d objects ended of %d that were begun", incarnation, ended, told.Begun)
	}
	if !killed && (counted.Unknown != 0 || counted.Unfinished[wire.CauseKilled] != 0) {
		t.Errorf("%s stopped cleanly, and left %d datagrams unknown and %v", incarnation, counted.Unknown, counted.Unfinished)
	}
}

func sum(counts map[wire.Cause]uint64) uint64 {
	total := uint64(0)
	for _, n := range counts {
		total += n
	}
	return total
}

// countStreams returns what the base streams hold, by incarnation, each message once.
func countStreams(t *testing.T, js jetstream.JetStream) map[string]wire.Totals {
	t.Helper()
	held := map[string]wire.Totals{}
	for _, name := range []string{wire.ObservationStream(site), wire.NoticeStream(site)} {
		seen := map[string]bool{}
		eachMessage(t, js, name, func(msg jetstream.Msg) {
			id := msg.Headers().Get(wire.HeaderID)
			if seen[id] {
				t.Errorf("%s is twice in %s", id, name)
			}
			seen[id] = true
			if name == wire.NoticeStream(site) {
				n, err := wire.Decode[wire.Notice](msg.Data())
				if err != nil {
					t.Fatal(err)
				}
				held[n.Incarnation] = held[n.Incarnation].Plus(wire.Totals{Objects: 1, ObjectBytes: uint64(n.Size), Digest: n.Digest})
				return
			}
			_, incarnation, _, err := wire.ParsePublicationID(id)
			if err != nil {
				t.Fatal(err)
			}
			n, _ := strconv.ParseUint(msg.Headers().Get(wire.HeaderDatagrams), 10, 64)
			size, _ := strconv.ParseUint(msg.Headers().Get(wire.HeaderDatagramBytes), 10, 64)
			held[incarnation] = held[incarnation].Plus(wire.Totals{Datagrams: n, DatagramBytes: size})
		})
	}
	return held
}

func eachMessage(t *testing.T, js jetstream.JetStream, name string, f func(jetstream.Msg)) {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	left := s.CachedInfo().State.Msgs
	consumer, err := s.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer messages.Stop()
	for ; left > 0; left-- {
		msg, err := messages.Next()
		if err != nil {
			t.Fatal(err)
		}
		f(msg)
	}
}

// eventuallyFinal lets one more incarnation write what those before it received, and returns the ledger's entries.
func eventuallyFinal(t *testing.T, url string, js jetstream.JetStream, dir string, incarnations map[string]intent) map[string]wire.LedgerEntry {
	t.Helper()
	g, err := openGateway(t.Context(), url, dir, "the-last")
	if err != nil {
		t.Fatal(err)
	}
	awaitEntry(t, js, camera, wire.DayOf(time.Now()), wire.StepReceived, func(e wire.LedgerEntry) bool {
		for incarnation, told := range incarnations {
			if _, is := e.Incarnations[incarnation]; !is && told.Begun > slackObjects {
				return false
			}
		}
		return true
	})
	if err := g.close(); err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), wire.LedgerBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := kv.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string]wire.LedgerEntry{}
	for _, key := range keys {
		v, err := kv.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if entries[key], err = wire.Decode[wire.LedgerEntry](v.Value()); err != nil {
			t.Fatal(err)
		}
	}
	return entries
}
