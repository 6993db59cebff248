// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/bus"
)

// leafLab is a hub that sources from a leaf, whose owner is the attacker.
type leafLab struct {
	*lab
	hub, away *testenv.NATSServer
	rogue     *testenv.Rogue
	nc        *nats.Conn          // of the leaf
	theirs    jetstream.JetStream // of the leaf
	leaves    jetstream.JetStream // of the hub's account LEAVES
	// heard are the consumers of the leaf's stream that the leaf's server has made for the hub.
	heard chan *nats.Msg
	// from is the newest of them. The hub listens for what it delivers, in LEAVES.
	from sourceConsumer
	// sources is where the hub listens for what it sources from LEAVES, in SUBSTORM.
	sources string
	count   int
}

// sourceConsumer is a consumer that a stream sources from.
type sourceConsumer struct {
	Stream string `json:"stream_name"`
	Name   string `json:"name"`
	Config struct {
		Deliver string `json:"deliver_subject"`
		// First is the sequence number of the first message that it delivers.
		First uint64 `json:"opt_start_seq"`
	} `json:"config"`
}

func newLeafLab(t *testing.T) (*lab, attackerConn) {
	t.Helper()
	l := startLeafLab(t, newHub(t), 1)
	return l.lab, l.attacker()
}

func newHub(t *testing.T) *testenv.NATSServer {
	t.Helper()
	return testenv.NATS(t, testenv.NATSOptions{Operator: true, Domain: code, TakesLeaves: true})
}

func startLeafLab(t *testing.T, hub *testenv.NATSServer, replicas int) *leafLab {
	t.Helper()
	l := &leafLab{lab: newLab(t, hub, replicas), hub: hub}
	l.fill()
	creds := hub.LeafCreds(t, permissions(bus.LeafUser(site(), v1alpha1.Leaf{Code: leaf})), jwt.ConnectionTypeLeafnode)
	l.away = testenv.NATS(t, testenv.NATSOptions{Domain: leaf, LeafOf: &testenv.LeafLink{Address: hub.LeafAddress(), Creds: creds}})
	file, err := os.ReadFile(creds)
	if err != nil {
		t.Fatal(err)
	}
	l.rogue = testenv.RogueLink{Address: hub.LeafAddress(), Creds: file, Domain: leaf}.Link(t)
	l.theirs, l.nc = l.away.JetStream(t), l.away.Connect(t)
	testenv.CreateSite(t, l.theirs, leaf)
	if l.leaves, err = jetstream.New(hub.ConnectLeaves(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.leaves.CreateStream(t.Context(), jetstream.StreamConfig{Name: canary, Subjects: []string{"canary.>"}}); err != nil {
		t.Fatal(err)
	}
	l.heard = make(chan *nats.Msg, 1024)
	if _, err := l.nc.ChanSubscribe("$JSC.R.>", l.heard); err != nil { // where servers answer the hub's
		t.Fatal(err)
	}
	copied := l.asked(l.leaves.Conn(), wire.CopiedObservationStream(code, leaf))
	testenv.AddLeaf(t, hub, code, leaf)
	l.sources = copied()
	l.await("the leaf's server delivers to the hub", l.madeAnew)
	l.send(fmt.Sprintf("PUB %s 8\r\ndatagram", wire.ObservationSubject(leaf, mag, "raw")))
	l.await("the hub has what the leaf sent", func() bool { return l.stream(obs).State.Msgs == stored+1 })
	l.settleLeaf = l.settle
	return l
}

// madeAnew says whether the leaf's server has made another consumer for the hub since it was asked last.
func (l *leafLab) madeAnew() (is bool) {
	l.t.Helper()
	for {
		select {
		case m := <-l.heard:
			var made sourceConsumer
			if err := json.Unmarshal(m.Data, &made); err != nil {
				l.t.Fatalf("%s: %v: %s", m.Subject, err, m.Data)
			}
			if made.Stream == wire.ObservationStream(leaf) && made.Config.Deliver != "" {
				l.from, is = made, true
			}
		default:
			return is
		}
	}
}

// listens is where the hub listens now for what it sources from the leaf.
func (l *leafLab) listens() string {
	l.t.Helper()
	l.madeAnew()
	return l.from.Config.Deliver
}

// asked returns where a stream is asked to deliver to, once a server makes a consumer to source from it.
func (l *leafLab) asked(nc *nats.Conn, stream string) (deliver func() string) {
	l.t.Helper()
	heard := make(chan *nats.Msg, 16)
	for _, filter := range []string{"", ".>"} {
		if _, err := nc.ChanSubscribe("$JS.API.CONSUMER.CREATE."+stream+filter, heard); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		l.t.Fatal(err)
	}
	return func() string {
		l.t.Helper()
		var create struct {
			Config struct {
				DeliverSubject string `json:"deliver_subject"`
			} `json:"config"`
		}
		select {
		case m := <-heard:
			if err := json.Unmarshal(m.Data, &create); err != nil || create.Config.DeliverSubject == "" {
				l.t.Fatalf("%s: %v: %s", m.Subject, err, m.Data)
			}
		case <-time.After(testenv.Patience):
			l.t.Fatalf("nobody sources from %s", stream)
		}
		return create.Config.DeliverSubject
	}
}

// attacker has everything that the owner of a leaf may try. The subjects with random parts, which the owner would have
// to guess, are known.
func (l *leafLab) attacker() attackerConn {
	l.t.Helper()
	heard, err := l.leaves.Conn().SubscribeSync(wire.SourcedPrefix(code, leaf) + ".canary")
	if err != nil {
		l.t.Fatal(err)
	}
	own := wire.ObservationSubject(leaf, mag, "raw")
	return attackerConn{nc: l.nc, api: wire.JetStreamAPI(code), consumer: durable(attacker),
		forgeries: []forgery{
			{"flow control of what is sourced", func(target string) { l.send(testenv.FlowControl("HPUB", l.listens(), target)) }},
			{"a stalled consumer of what is sourced", func(target string) { l.send(testenv.Stalled("HPUB", l.listens(), target, "100 Idle Heartbeat", "")) }},
			{"flow control of what the hub copies", func(target string) {
				l.send(testenv.FlowControl("HPUB", l.sources, target))
				l.send(testenv.Stalled("HPUB", l.sources, target, "100 Idle Heartbeat", ""))
			}},
			{"an empty message where the hub copies", func(string) { l.send(testenv.FlowControl("HPUB", l.listens(), l.sources)) }},
			{"a stored message that looks like flow control", func(target string) {
				l.send(testenv.Stalled("HPUB", own, target, "100 Idle Heartbeat", "x"))
				l.send(testenv.Stalled("HPUB", own, target, "100", "x"))
				l.send(testenv.Stalled("HPUB", own, target, "", ""))
				l.send(testenv.Stalled("HPUB", own, target, "", "x"))
			}},
		},
		arrived: func() {
			l.count++
			l.await("the hub has what the leaf sent", func() bool { // what the hub listens to reaches the leaf a moment later
				if err := l.nc.Publish(wire.SourcedPrefix(code, leaf)+".canary", fmt.Append(nil, l.count)); err != nil {
					l.t.Fatal(err)
				}
				m, err := heard.NextMsg(100 * time.Millisecond)
				return err == nil && string(m.Data) == fmt.Sprint(l.count)
			})
		}}
}

// settle waits until the hub has answered all that the leaf has forged, and has all that the leaf's stream holds. The same
// forgery does have its effect within LEAVES: the test shows something.
func (l *leafLab) settle() {
	l.t.Helper()
	if _, err := l.leaves.Publish(l.t.Context(), "canary.x", []byte("x")); err != nil {
		l.t.Fatal(err)
	}
	purge := "$JS.API.STREAM.PURGE." + canary
	l.await("flow control has its effect within the account of leaves", func() bool {
		l.send(testenv.FlowControl("HPUB", l.listens(), purge))
		s, err := l.leaves.Stream(l.t.Context(), canary)
		return err == nil && s.CachedInfo().State.Msgs == 0
	})
	last := wire.ObservationSubject(leaf, "last", "raw")
	if _, err := l.theirs.Publish(l.t.Context(), last, []byte("last")); err != nil {
		l.t.Fatal(err)
	}
	theirs, err := l.theirs.Stream(l.t.Context(), wire.ObservationStream(leaf))
	if err != nil {
		l.t.Fatal(err)
	}
	l.await("the hub has all that the leaf's stream holds", func() bool {
		s, err := l.js.Stream(l.t.Context(), obs)
		if err != nil {
			return false
		}
		info, err := s.Info(l.t.Context(), jetstream.WithSubjectFilter(wire.ObservationSubjects(leaf)))
		sum := uint64(0)
		for _, n := range info.State.Subjects {
			sum += n
		}
		return err == nil && sum == theirs.CachedInfo().State.Msgs
	})
}

// send publishes at the leaf. Clients' libraries send no such status lines, so this is the protocol itself.
func (l *leafLab) send(message string) {
	l.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(l.away.URL(), "nats://"))
	if err != nil {
		l.t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "CONNECT {\"headers\":true,\"verbose\":false}\r\n%s\r\nPING\r\n", message)
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if lines.Text() == "PONG" {
			return
		}
		if strings.HasPrefix(lines.Text(), "-ERR") {
			l.t.Fatalf("the leaf's own server: %s", lines.Text())
		}
	}
	l.t.Fatal("the leaf's own server closed the connection")
}

// delivery is a message as the leaf's server delivers it, whether the leaf's stream holds it or not. Status is of the
// header's first line.
type delivery struct{ subject, status, stalledFor, payload string }

// deliver sends the hub what the leaf's stream would hold behind its one message, until the hub's stream has so many
// messages. The leaf's server says each second how many messages it has delivered. That contradicts what the hub got,
// so that the hub asks for another consumer, which begins behind what it has: it is sent the rest as from that one. The
// hub does not take messages again that it has.
func (l *leafLab) deliver(want uint64, forged ...delivery) {
	l.t.Helper()
	l.await("the hub has what the leaf sent", func() bool {
		l.madeAnew()
		for i, d := range forged {
			seq := uint64(i + 2)
			if seq < l.from.Config.First {
				continue
			}
			reply := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.%d.0@%s", l.from.Stream, l.from.Name, seq, seq-l.from.Config.First+1, time.Now().UnixNano(), d.subject)
			head := "NATS/1.0" + d.status + "\r\nNats-Consumer-Stalled: " + d.stalledFor + "\r\n\r\n"
			l.rogue.Send(testenv.Headed("HMSG "+l.from.Config.Deliver+" "+reply, head, d.payload))
		}
		return l.stream(obs).State.Msgs == want
	})
}

// headers returns the headers of a stream's messages on a subject, as they are stored.
func (l *leafLab) headers(nc *nats.Conn, stream, subject string) []string {
	l.t.Helper()
	var all []string
	for seq := uint64(1); ; seq++ {
		m, err := nc.Request("$JS.API.STREAM.MSG.GET."+stream, fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%q}`, seq, subject), testenv.Patience)
		if err != nil {
			l.t.Fatal(err)
		}
		var got struct {
			Message *struct {
				Seq  uint64 `json:"seq"`
				Hdrs []byte `json:"hdrs"`
			} `json:"message"`
		}
		if err := json.Unmarshal(m.Data, &got); err != nil {
			l.t.Fatal(err)
		}
		if got.Message == nil {
			return all
		}
		seq = got.Message.Seq
		all = append(all, string(got.Message.Hdrs))
	}
}

// TestLeafOfACluster: the hub's servers are a cluster, whose streams answer flow control once they have replicated it. No
// attack works there either.
func TestLeafOfACluster(t *testing.T) {
	hub := testenv.NATSCluster(t, testenv.NATSOptions{Operator: true, Domain: code, TakesLeaves: true})
	l := startLeafLab(t, hub.Nodes[0], 3)
	a := l.attacker()
	for _, r := range requests {
		for _, f := range a.forgeries {
			f.send(r.subject)
		}
	}
	a.arrived()
	l.lab.settle()
	for _, r := range requests {
		if r.done(l.lab) {
			t.Errorf("%s: done", r.name)
		}
	}
}

// TestLeafRollsUp: the leaf's owner makes its stream accept rollups, and stores messages with that header. The hub stores the sourced
// messages as they are, and they remove nothing, neither in the account of leaves nor in the account of the streams.
func TestLeafRollsUp(t *testing.T) {
	l := startLeafLab(t, newHub(t), 1)
	copied, err := l.leaves.Stream(t.Context(), wire.CopiedObservationStream(code, leaf))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := l.theirs.Stream(t.Context(), wire.ObservationStream(leaf))
	if err != nil {
		t.Fatal(err)
	}
	cfg := theirs.CachedInfo().Config
	cfg.AllowRollup = true
	if _, err := l.theirs.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	// rolls sends one of each kind, and returns how many messages the hub's streams have then.
	rolls := func() (inCopy, inHub uint64) {
		t.Helper()
		before := l.stream(obs).State.LastSeq
		for _, mode := range []string{jetstream.MsgRollupSubject, jetstream.MsgRollupAll} {
			m := nats.NewMsg(wire.ObservationSubject(leaf, mag, "raw"))
			m.Header.Set(jetstream.MsgRollup, mode)
			m.Data = []byte(mode)
			if _, err := l.theirs.PublishMsg(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		l.await("the hub has what the leaf sent", func() bool { return l.stream(obs).State.LastSeq == before+2 })
		info, err := copied.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.State.Msgs, l.stream(obs).State.Msgs
	}
	if inCopy, inHub := rolls(); inCopy != 1+2 || inHub != stored+1+2 {
		t.Errorf("after rollups %d messages are in the account of leaves, and %d in that of the streams", inCopy, inHub)
	}
	lines := l.headers(l.js.Conn(), obs, wire.ObservationSubject(leaf, mag, "raw"))
	if len(lines) != 1+2 || !strings.Contains(lines[2], jetstream.MsgRollup+": "+jetstream.MsgRollupAll) {
		t.Errorf("the hub stores %q: the header did not come, so the test shows nothing", lines)
	}

	hub := l.stream(obs).Config
	hub.AllowRollup = true
	if _, err := l.js.UpdateStream(t.Context(), hub); err != nil {
		t.Fatal(err)
	}
	if _, inHub := rolls(); inHub != 1 {
		t.Errorf("%d messages are left where the hub takes rollups: the test shows nothing", inHub)
	}
}

// TestLeafStoresFlowControl: the streams in the account of leaves hold messages with the status line of flow control.
// The hub's copies of them are no flow control: a message with that line and no payload is not stored.
func TestLeafStoresFlowControl(t *testing.T) {
	l := startLeafLab(t, newHub(t), 1)
	var forged []delivery
	for _, r := range requests {
		forged = append(forged, delivery{wire.ObservationSubject(leaf, "forged", "raw"), " 100 FlowControl Request", r.subject, "x"})
	}
	for _, r := range requests {
		forged = append(forged, delivery{wire.ObservationSubject(leaf, "forged", "raw"), "", r.subject, ""})
	}
	l.deliver(stored+1+uint64(len(forged)), forged...)
	lines := 0
	for _, head := range l.headers(l.leaves.Conn(), wire.CopiedObservationStream(code, leaf), wire.ObservationSubject(leaf, "forged", "raw")) {
		if strings.HasPrefix(head, "NATS/1.0 100 ") {
			lines++
		}
	}
	if lines != len(requests) {
		t.Errorf("%d messages with the status line of flow control are stored: this test shows nothing", lines)
	}
	l.settleLeaf = nil
	l.lab.settle()
	for _, r := range requests {
		if r.done(l.lab) {
			t.Errorf("%s: done", r.name)
		}
	}
}

// TestLeafSpeaksForAnother: what a leaf sends under the subjects of another Site stays in its own stream of the account
// of leaves, and what it sends under subjects of the hub is stored as refused.
func TestLeafSpeaksForAnother(t *testing.T) {
	l := startLeafLab(t, newHub(t), 1)
	forged, hubs := wire.ObservationSubject("south", mag, "raw"), wire.ObservationSubject(code, "other", "raw")
	l.deliver(stored+3, delivery{forged, "", "x", "forged"}, delivery{hubs, "", "x", "forged"},
		delivery{wire.ObservationSubject(leaf, mag, "raw"), "", "x", "last"})
	copies := wire.CopiedObservationStream(code, leaf)
	for _, c := range []struct {
		nc              *nats.Conn
		stream, subject string
		holds           int
	}{
		{l.leaves.Conn(), copies, forged, 1}, {l.js.Conn(), obs, forged, 0},
		{l.leaves.Conn(), copies, hubs, 0}, {l.js.Conn(), obs, hubs, 0},
		{l.js.Conn(), obs, wire.RefusedSubject(code, leaf, hubs), 1},
	} {
		if n := len(l.headers(c.nc, c.stream, c.subject)); n != c.holds {
			t.Errorf("%s holds %d messages on %s, not %d", c.stream, n, c.subject, c.holds)
		}
	}
}
