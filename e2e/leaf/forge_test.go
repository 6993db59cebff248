// SPDX-License-Identifier: Apache-2.0

package leaf

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// A leaf may hold and send messages that bear the hub's own subjects. The hub's streams
// hold them apart, where no program of the hub reads them.
func TestLeafForgesTheHubsOwn(t *testing.T) {
	t.Parallel()
	l := newLab(t, true, nil)
	l.linked()
	forged := map[string][]string{
		wire.NoticeStream(leafCode): {wire.NoticeSubject(hubCode, camera), wire.RequestSubject(hubCode, camera),
			wire.DecisionSubject(hubCode, camera, "01k9zqv7r4"), wire.GapSubject(hubCode, "consumer")},
		wire.ObservationStream(leafCode): {wire.ObservationSubject(hubCode, mag, "raw")},
	}
	leaf, hub := l.leaf.JetStream(t), l.hub.JetStream(t)
	for name, subjects := range forged {
		l.takeAnything(leaf, name, subjects)
		for _, subject := range subjects {
			if _, err := leaf.Publish(t.Context(), subject, []byte(foreign)); err != nil {
				t.Fatal(err)
			}
		}
	}
	// These messages are published after the forged ones and come after them.
	last := map[string]string{wire.NoticeStream(hubCode): wire.NoticeSubject(leafCode, "link"), wire.ObservationStream(hubCode): wire.ObservationSubject(leafCode, "last", "raw")}
	for name, subject := range last {
		if _, err := leaf.Publish(t.Context(), subject, []byte(tick)); err != nil {
			t.Fatal(err)
		}
		await(t, "the hub has what the leaf sent last", func() error {
			n, err := count(t, hub, name, subject)
			if err == nil && n == 0 {
				err = fmt.Errorf("%s holds nothing on %s", name, subject)
			}
			return err
		})
	}
	for name := range last {
		refused := 0
		for _, m := range held(t, hub, name, ">") {
			if string(m.data) != foreign {
				continue
			}
			if refused++; !strings.HasPrefix(m.subject, "refused.") {
				t.Errorf("%s holds on %s what the leaf has forged", name, m.subject)
			}
		}
		if refused == 0 {
			t.Errorf("nothing that the leaf forged came to %s: the test shows nothing", name)
		}
	}
}

// takeAnything makes a stream of the leaf take other subjects too: the hub asks for these.
func (l *lab) takeAnything(js jetstream.JetStream, name string, subjects []string) {
	l.t.Helper()
	s, err := js.Stream(l.t.Context(), name)
	if err != nil {
		l.t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.Subjects = append(cfg.Subjects, subjects...)
	if _, err := js.UpdateStream(l.t.Context(), cfg); err != nil {
		l.t.Fatal(err)
	}
}
