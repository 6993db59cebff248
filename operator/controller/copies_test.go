// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// copiesLab is a hub with a leaf that publishes numbered notices.
type copiesLab struct {
	*world
	leaf         *testenv.NATSServer
	hub, leaves  jetstream.JetStream
	published    int
	base, copies string
}

func newCopiesLab(t *testing.T) *copiesLab {
	t.Helper()
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	w.setLeaves("hub", `[{"code":"north"}]`)
	l := &copiesLab{world: w, leaf: w.leaf("north"), hub: w.nats.JetStream(t), base: "NOTICE_hub", copies: wire.CopiedNoticeStream("hub", "north")}
	var err error
	if l.leaves, err = jetstream.New(w.nats.ConnectLeaves(t)); err != nil {
		t.Fatal(err)
	}
	w.awaits("Site", "hub", "LeavesReachable", "True/Reachable")
	return l
}

// publish has the leaf publish so many notices.
func (l *copiesLab) publish(count int) {
	l.t.Helper()
	js := l.leaf.JetStream(l.t)
	for range count {
		l.published++
		id := fmt.Sprint("notice ", l.published)
		if _, err := js.Publish(l.t.Context(), wire.NoticeSubject("north", "camera"), []byte(id)); err != nil {
			l.t.Fatal(err)
		}
	}
}

// arrived waits until the hub's stream has all that was published, and returns how many messages that are.
func (l *copiesLab) arrived() int {
	l.t.Helper()
	held := 0
	eventually(l.t, "what the leaf published should come", func() error {
		got := map[string]bool{}
		held = 0
		s, err := l.hub.Stream(l.t.Context(), l.base)
		if err != nil {
			return err
		}
		for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq; seq++ {
			m, err := s.GetMsg(l.t.Context(), seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if m.Subject == wire.NoticeSubject("north", "camera") {
				got[string(m.Data)] = true
				held++
			}
		}
		if len(got) != l.published {
			return fmt.Errorf("there are %d of %d", len(got), l.published)
		}
		return nil
	})
	return held
}

func (l *copiesLab) state() jetstream.StreamState {
	l.t.Helper()
	s, err := l.leaves.Stream(l.t.Context(), l.copies)
	if err != nil {
		l.t.Fatal(err)
	}
	return s.CachedInfo().State
}

func (l *copiesLab) trimmed() {
	l.t.Helper()
	eventually(l.t, "all but the newest copy should be removed", func() error {
		if state := l.state(); state.Msgs != 1 || state.FirstSeq != state.LastSeq {
			return fmt.Errorf("there are %d, from %d to %d", state.Msgs, state.FirstSeq, state.LastSeq)
		}
		return nil
	})
}

// Messages that the hub's stream has are removed from the account of leaves, except for the newest, and none comes
// twice if the hub's server was killed.
func TestCopiesAreTrimmed(t *testing.T) {
	l := newCopiesLab(t)
	l.publish(5)
	l.arrived()
	l.trimmed()
	l.nats.Kill()
	l.nats.Start()
	l.publish(3)
	if held := l.arrived(); held != l.published {
		t.Errorf("%d messages came for %d", held, l.published)
	}
	l.trimmed()
}

// A leaf can purge and delete streams in the account of leaves, also another leaf's, before the hub's stream has what they
// hold. All of it comes nevertheless.
func TestCopiesAreRemoved(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(l *copiesLab) error{
		"purged": func(l *copiesLab) error {
			s, err := l.leaves.Stream(l.t.Context(), l.copies)
			if err != nil {
				return err
			}
			return s.Purge(l.t.Context())
		},
		"deleted": func(l *copiesLab) error { return l.leaves.DeleteStream(l.t.Context(), l.copies) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newCopiesLab(t)
			l.publish(5)
			l.arrived()
			l.hold(3)
			if err := remove(l); err != nil {
				t.Fatal(err)
			}
			l.arrived()
			l.publish(1)
			l.arrived()
			l.trimmed()
		})
	}
}

// hold has the leaf publish notices that wait in the account of leaves: the hub's stream takes nothing until the operator
// looks after it the next time.
func (l *copiesLab) hold(count int) {
	l.t.Helper()
	before := l.state().LastSeq
	s, err := l.hub.Stream(l.t.Context(), l.base)
	if err != nil {
		l.t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.Sources = nil
	if _, err := l.hub.UpdateStream(l.t.Context(), cfg); err != nil {
		l.t.Fatal(err)
	}
	l.publish(count)
	eventually(l.t, "the copies should be there", func() error {
		if state := l.state(); state.LastSeq != before+uint64(count) {
			return fmt.Errorf("the last is %d after %d", state.LastSeq, before)
		}
		return nil
	})
}

// A leaf that answers but sends no heartbeats is asked again, while JetStream by itself would wait longer after each failed try; a leaf
// that is away is not asked. No message of it arrives twice.
func TestLeafIsAskedAnew(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	w.setLeaves("hub", `[{"code":"north"},{"code":"away"}]`)
	hub, err := w.nats.ConnectLeaves(t).SubscribeSync("$JS.EVENT.ADVISORY.STREAM.UPDATED.*")
	if err != nil {
		t.Fatal(err)
	}
	server := w.leafServer("north") // without streams, so JetStream gets no answer
	asked := map[string]int{}
	eventually(t, "the hub should ask anew", func() error {
		for msg, err := hub.NextMsg(time.Millisecond); err == nil; msg, err = hub.NextMsg(time.Millisecond) {
			asked[msg.Subject[strings.LastIndex(msg.Subject, ".")+1:]]++
		}
		if asked[wire.CopiedNoticeStream("hub", "north")] < 4 { // its source is taken away and added
			return fmt.Errorf("updates of streams: %v", asked)
		}
		return nil
	})
	if asked[wire.CopiedNoticeStream("hub", "away")] > 0 {
		t.Errorf("a leaf that is away is asked anew: %v", asked)
	}
	testenv.CreateSite(t, server.JetStream(t), "north")
	l := &copiesLab{world: w, leaf: server, hub: w.nats.JetStream(t), base: "NOTICE_hub"}
	l.publish(5)
	if held := l.arrived(); held != l.published {
		t.Errorf("%d messages came for %d", held, l.published)
	}
}
