// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// pair are two gateways of one pool on two nodes; the first receives.
type pair struct {
	*lab
	port          int
	tls           string
	owner, peer   *gateway
	ownerO, peerO gatewayOptions
}

// newPair starts both, and waits until the peer is known.
func newPair(t *testing.T, after string) *pair {
	t.Helper()
	p := &pair{lab: newLabAlone(t), port: testenv.FreePort(t)}
	p.declare(t, spoolingCamera(p.port, "Replicated"))
	p.tls = testenv.NewCA(t).Dir(t, "north", wire.GatewayName("north"))
	options := func(name, node string) gatewayOptions {
		return gatewayOptions{name: name, dir: t.TempDir(), flags: []string{
			"--node", node, "--pod-ip", "127.0.0.1", "--replica-listen", fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)),
			"--replica-tls-dir", p.tls, "--replica-after", after,
		}}
	}
	p.ownerO, p.peerO = options("north-0", "node-a"), options("north-1", "node-b")
	p.owner = p.start(t, p.ownerO)
	p.owner.awaitReady()
	dial(t, p.port).Close() // the owner has the port: on one machine only one can
	p.peer = p.start(t, p.peerO)
	p.peer.awaitReady()
	p.awaitPeer(t, "north-0", "north-1")
	return p
}

func (p *pair) awaitPeer(t *testing.T, gateway, peer string) {
	t.Helper()
	await(t, gateway+" has the peer "+peer, func() (bool, string) {
		s, err := p.gatewayStatus(t, gateway)
		return err == nil && s.Peer == peer, fmt.Sprintf("%+v, %v", s, err)
	})
}

func (p *pair) awaitCopies(t *testing.T, n int) {
	t.Helper()
	await(t, fmt.Sprintf("the peer keeps %d copies", n), func() (bool, string) {
		v := p.peer.metric("substorm_gateway_copies")
		return v == fmt.Sprint(n), v
	})
}

// receipts sends objects of these sizes, each with a receipt.
func (p *pair) receipts(t *testing.T, s *sent, sizes ...int) {
	t.Helper()
	for _, size := range sizes {
		object := random(uint64(1000*len(s.objects)+size), size)
		mustSend(t, p.port, object)
		s.receipted(object)
	}
}

// awaitArchived waits until the archive lists what the sender's list says, each object once,
// whichever gateway archived it.
func (p *pair) awaitArchived(t *testing.T, s *sent) {
	t.Helper()
	await(t, "all objects are listed, once", func() (bool, string) {
		listed, stored := p.listing(t, "camera"), p.stored(t, "camera")
		if len(listed) != len(s.objects) || len(stored) != len(s.objects) {
			return false, fmt.Sprintf("%d listed, %d stored, %d receipted", len(listed), len(stored), len(s.objects))
		}
		for d := range s.objects {
			if listed[d] != 1 {
				return false, fmt.Sprintf("%s is listed %d times", d, listed[d])
			}
		}
		return true, ""
	})
	for id, n := range p.stored(t, "camera") {
		if digest, _ := p.digestOf(t, n.Record); s.objects[digest] != 1 {
			t.Errorf("%s holds what nobody sent: %s", id, digest)
		}
	}
}

var outageSizes = []int{1000, 70_000, 1_000_000, 20 << 20, 10}

// While store and JetStream are away the receipt means two spools. The owner's
// node and volume are lost: the peer drains everything.
func TestReplicatedSurvivesALostNode(t *testing.T) {
	t.Parallel()
	p := newPair(t, "6s")
	var s sent
	p.receipts(t, &s, 1000, 300_000)
	p.minio.Kill()
	p.nats.Kill()
	p.receipts(t, &s, outageSizes...)
	p.awaitCopies(t, len(outageSizes))
	p.owner.kill()
	if err := os.RemoveAll(p.ownerO.dir); err != nil {
		t.Fatal(err)
	}
	p.nats.Start()
	p.minio.Start()
	p.awaitArchived(t, &s)
	p.awaitCopies(t, 0)
	for _, n := range p.notices(t) {
		if n.Gateway != "north-0" {
			t.Errorf("%s says that %s received it", n.Key, n.Gateway)
		}
	}
	if err := p.peer.stop(); err != nil {
		t.Error(err)
	}
}

// The servers come back: the owner drains, and the peer forgets.
func TestReplicatedDrains(t *testing.T) {
	t.Parallel()
	p := newPair(t, "10m")
	var s sent
	for name, outage := range p.outages() {
		t.Log(name)
		outage.begin()
		p.receipts(t, &s, outageSizes...)
		outage.over()
		p.receipts(t, &s, 2000)
		p.awaitDrained(t, p.owner, &s)
		p.awaitCopies(t, 0)
	}
}

// The owner is away for so long that the peer drains, and then it returns
// with its volume: every object is archived once and counted once.
func TestReplicatedOwnerReturns(t *testing.T) {
	t.Parallel()
	p := newPair(t, "6s")
	var s sent
	p.minio.Kill()
	p.nats.Kill()
	p.receipts(t, &s, outageSizes...)
	p.owner.kill()
	p.nats.Start()
	p.minio.Start()
	p.awaitArchived(t, &s)
	p.owner = p.start(t, p.ownerO)
	p.owner.awaitReady()
	p.awaitDrained(t, p.owner, &s)
	p.awaitArchived(t, &s)
}

// The peer is killed while it has copies, and comes back with them on its volume.
func TestReplicatedPeerIsKilled(t *testing.T) {
	t.Parallel()
	p := newPair(t, "6s")
	var s sent
	p.minio.Kill()
	p.nats.Kill()
	p.receipts(t, &s, outageSizes...)
	p.peer.kill()
	if a := send(t, p.port, random(77, 5000)); a.err == nil && a.line != "" {
		t.Errorf("a receipt without a second spool: %q", a.line)
	} else if a.err != nil && !isReset(a.err) {
		t.Error(a.err)
	}
	p.peer = p.start(t, p.peerO)
	p.awaitCopies(t, len(outageSizes))
	await(t, "the owner finds its peer, without JetStream", func() (bool, string) {
		object := random(uint64(1000*len(s.objects)+7), 7000)
		a := send(t, p.port, object)
		if a.err == nil && a.line != "" {
			s.receipted(object)
			return true, ""
		}
		return false, fmt.Sprint(a.line, a.err)
	})
	p.owner.kill()
	if err := os.RemoveAll(p.ownerO.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	p.nats.Start()
	p.minio.Start()
	p.awaitArchived(t, &s)
}
