// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"slices"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// In a cluster of three, one node after the other falls silent for a while: the stream's leader,
// the durable's leader, and the client's node. A consumer that acknowledges loses nothing.
func TestNodeCutOff(t *testing.T) {
	t.Parallel()
	cluster := testenv.NATSCluster(t, testenv.NATSOptions{Operator: true})
	l := newLab(t, cluster, 3)
	l.declare(wire.ConsumerEntry{Consumer: "model", Flow: wire.FlowEntry{Mode: wire.FlowAll}})
	l.serve("pod-0")
	nc := l.connect("model")
	k := newTaken()
	consume(t, nc, wire.NoticeStream(site), "model", k, 0, nil)
	consume(t, nc, wire.ObservationStream(site), "model", k, 0, nil)
	number := 0
	some := func(count int) {
		for range count {
			l.announce(camera, number)
			l.telemetry(mag, number, 1)
			number++
		}
	}
	leader := func(durable bool) *testenv.NATSServer {
		s, err := l.js.Stream(t.Context(), wire.NoticeStream(site))
		if err != nil {
			t.Fatal(err)
		}
		name := s.CachedInfo().Cluster.Leader
		if durable {
			c, err := s.Consumer(t.Context(), wire.ConsumerDurable("model", issue))
			if err != nil {
				t.Fatal(err)
			}
			name = c.CachedInfo().Cluster.Leader
		}
		return cluster.Named(name)
	}
	some(50)
	for name, node := range map[string]func() *testenv.NATSServer{
		"leads the stream":    func() *testenv.NATSServer { return leader(false) },
		"leads the durable":   func() *testenv.NATSServer { return leader(true) },
		"serves the consumer": func() *testenv.NATSServer { return cluster.NodeOf(nc) },
	} {
		cut := node()
		if cut == nil {
			t.Fatalf("nobody %s", name)
		}
		t.Logf("%s %s", cut.URL(), name)
		cut.Pause()
		some(100)
		testenv.Await(t, "all is taken without the one that "+name, func() bool { return k.count("notice") == number && k.count("obs") == number })
		cut.Continue()
		some(20)
		testenv.Await(t, "all is taken with it", func() bool { return k.count("notice") == number && k.count("obs") == number })
		testenv.Await(t, "the node has caught up", func() bool {
			s, err := l.js.Stream(t.Context(), wire.NoticeStream(site))
			if err != nil || s.CachedInfo().Cluster == nil || s.CachedInfo().Cluster.Leader == "" {
				return false
			}
			for _, r := range s.CachedInfo().Cluster.Replicas {
				if !r.Current || r.Offline {
					return false
				}
			}
			return len(s.CachedInfo().Cluster.Replicas) == 2
		})
	}
	same(t, "notices", upTo(number), k.distinct("notice"))
	same(t, "datagrams", upTo(number), k.distinct("obs"))
	same(t, "gaps", nil, k.allGaps())
}

// One of three nodes falls silent: the leader of the stream of a consumer of mode Latest. The
// consumer gets the newest all the same.
func TestLatestNodeCutOff(t *testing.T) {
	t.Parallel()
	cluster := testenv.NATSCluster(t, testenv.NATSOptions{Operator: true})
	l := newLab(t, cluster, 3)
	l.declare(wire.ConsumerEntry{Consumer: "display", Flow: wire.FlowEntry{Mode: wire.FlowLatest}})
	l.serve("pod-0")
	k := newTaken()
	consume(t, l.connect("display"), wire.ConsumerStream(site, "display"), "display", k, 0, nil)
	number := 0
	newest := func(what string) {
		t.Helper()
		for range 20 {
			l.announce(camera, number)
			l.telemetry(mag, number, 1)
			number++
		}
		testenv.Await(t, what, func() bool {
			return slices.Contains(k.distinct("notice"), number-1) && slices.Contains(k.distinct("obs"), number-1)
		})
	}
	newest("the newest is given")
	s, err := l.js.Stream(t.Context(), wire.ConsumerStream(site, "display"))
	if err != nil {
		t.Fatal(err)
	}
	cut := cluster.Named(s.CachedInfo().Cluster.Leader)
	if cut == nil {
		t.Fatal("nobody leads the stream")
	}
	cut.Pause()
	newest("the newest is given without the node")
	cut.Continue()
	newest("the newest is given with it")
}
