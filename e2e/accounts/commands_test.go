// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/internal/wire"
)

// TestCommandsRead: through the boundary a command reads buckets whole, single entries and messages, and its request is
// stored. A command for another instrument's objects cannot request.
func TestCommandsRead(t *testing.T) {
	for name, start := range buses {
		t.Run(name, func(t *testing.T) {
			b, replicas := start(t)
			l := newLab(t, b, replicas)
			want := l.fillLedger(2500)
			l.publish(wire.ObservationSubject(code, mag, "raw"), "datagram")

			js := l.command("`substorm archive retract`, `purge`")
			is := map[string]string{}
			var sequence uint64
			err := backend.Entries(t.Context(), js, wire.LedgerBucket(code), "*.even", func(e backend.Entry) error {
				if e.Sequence <= sequence {
					t.Errorf("entry %s comes after one of sequence %d, and has %d", e.Key, sequence, e.Sequence)
				}
				is[e.Key], sequence = string(e.Data), e.Sequence
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(is) != fmt.Sprint(want) {
				t.Errorf("read %d entries, there are %d, or they are others", len(is), len(want))
			}
			kv, err := js.KeyValue(t.Context(), wire.LedgerBucket(code))
			if err != nil {
				t.Fatal(err)
			}
			if e, err := kv.Get(t.Context(), "2.even"); err != nil || string(e.Value()) != "again" {
				t.Errorf("one entry: %v, %v", e, err)
			}
			s, err := js.Stream(t.Context(), obs)
			if err != nil {
				t.Fatal(err)
			}
			if m, err := s.GetMsg(t.Context(), 1, jetstream.WithGetMsgSubject(wire.ObservationSubjects(code))); err != nil || string(m.Data) != "datagram" {
				t.Errorf("one message: %v, %v", m, err)
			}
			before := l.stream(notices).State.LastSeq
			if ack, err := js.Publish(t.Context(), wire.RequestSubject(code, camera), []byte("{}")); err != nil || ack.Sequence <= before {
				t.Errorf("a request: %v, %v", ack, err)
			}
			if err := js.Conn().Publish(wire.RequestSubject(code, mag), []byte("{}")); err != nil {
				t.Fatal(err)
			}
			if err := js.Conn().Flush(); err != nil {
				t.Fatal(err)
			}
			if last := l.publish(wire.NoticeSubject(code, camera), "{}"); last != before+2 {
				t.Errorf("a request for another instrument is stored: the next notice is %d, not %d", last, before+2)
			}
			if err := backend.Entries(t.Context(), js, "OTHER", ">", nil); err == nil {
				t.Error("a bucket that is not there has been read")
			}
			if err := backend.Entries(t.Context(), js, wire.StatusBucket(code), ">", func(backend.Entry) error { return errors.New("none is there") }); err != nil {
				t.Errorf("an empty bucket: %v", err)
			}
		})
	}
}

// fillLedger writes so many keys, each second of them *.even, writes one of these again, and deletes others. It
// returns what is left of *.even.
func (l *lab) fillLedger(keys int) map[string]string {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.LedgerBucket(code))
	if err != nil {
		l.t.Fatal(err)
	}
	left := map[string]string{}
	for i := range keys {
		key := fmt.Sprintf("%d.%s", i, []string{"even", "odd"}[i%2])
		if _, err := l.js.PublishAsync("$KV."+wire.LedgerBucket(code)+"."+key, fmt.Append(nil, i)); err != nil {
			l.t.Fatal(err)
		}
		if i%2 == 0 {
			left[key] = fmt.Sprint(i)
		}
	}
	<-l.js.PublishAsyncComplete()
	_, err = kv.PutString(l.t.Context(), "2.even", "again")
	if err := errors.Join(err, kv.Delete(l.t.Context(), "4.even"), kv.Delete(l.t.Context(), "6.even")); err != nil {
		l.t.Fatal(err)
	}
	left["2.even"] = "again"
	delete(left, "4.even")
	delete(left, "6.even")
	return left
}

// command connects as the user of a command that is of the account COMMANDS.
func (l *lab) command(name string) jetstream.JetStream {
	l.t.Helper()
	for _, c := range backend.Users(code, camera, pod) {
		if c.Name != name || !c.OfCommands {
			continue
		}
		js, err := jetstream.NewWithAPIPrefix(l.connect(l.bus.CommandCreds(l.t, permissions(c.User)), nats.CustomInboxPrefix(c.User.InboxPrefix)), wire.CommandAPI)
		if err != nil {
			l.t.Fatal(err)
		}
		return js
	}
	l.t.Fatalf("no command of the account COMMANDS is %s", name)
	return nil
}
