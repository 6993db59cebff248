// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// The heartbeats of several senders of one instrument are reported together, and for each
// sender by itself; if there are very many senders, only those that were heard last are
// reported.
func TestSeveralSenders(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	g := l.start(t, gatewayOptions{})
	l.awaitRevision(t, g.name, l.declare(t, framed("spectra", port, wire.FramingLengthPrefixed)))
	d := newDialog(t, port)
	beat := func(sender string, offset time.Duration, objects int64) {
		t.Helper()
		frame, err := wire.Heartbeat{Sender: sender, SentAt: time.Now(), ClockOffset: (*wire.Span)(&offset), QueueObjects: objects, QueueBytes: 10 * objects}.Frame()
		if err != nil {
			t.Fatal(err)
		}
		d.write(frame)
	}
	kv, err := l.js.KeyValue(t.Context(), wire.StatusBucket(l.site))
	if err != nil {
		t.Fatal(err)
	}
	told := func(senders int, offset time.Duration, objects int64) {
		t.Helper()
		await(t, fmt.Sprintf("%d senders with %d objects are told", senders, objects), func() (bool, string) {
			e, err := kv.Get(t.Context(), wire.SenderStatusKey("spectra", g.name))
			if err != nil {
				return false, err.Error()
			}
			s, err := wire.Decode[wire.SenderStatus](e.Value())
			return err == nil && len(s.Senders) == senders && s.ClockOffset != nil && time.Duration(*s.ClockOffset) == offset &&
				s.QueueObjects == objects && s.QueueBytes == 10*objects, fmt.Sprintf("%+v, %v", s, err)
		})
	}
	beat("one", -time.Minute, 1)
	beat("two", time.Second, 20)
	beat("", time.Millisecond, 300)
	told(3, -time.Minute, 321)
	beat("one", time.Second, 2) // and not the sum of what it said
	beat("", 2*time.Second, 400)
	told(3, 2*time.Second, 422)
	if v := g.metric(`substorm_gateway_sender_queue_objects{instrument="spectra"}`); v != "422" {
		t.Errorf("the metric says %s", v)
	}
	const bound = 32
	for i := range bound + 8 {
		beat(fmt.Sprint("many-", i), time.Duration(i)*time.Second, int64(i))
	}
	told(bound, (bound+7)*time.Second, bound*(8+bound+7)/2)
}
