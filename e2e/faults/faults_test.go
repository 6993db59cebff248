// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// fault is something that goes wrong and is mended again.
type fault struct {
	// of is a program, or the way between two, and is what happens to it.
	of, is     string
	begin, end func()
	// kind orders the ends of two faults: a program waits at its start for the servers.
	kind kind
}

type kind int

const (
	ofServer kind = iota
	ofProgram
	// ofBucket needs NATS and is over when it has begun.
	ofBucket
)

// faults of a Site with two pools and two archivists. Each bucket is one of its own.
func (l *lab) faults() []fault {
	all := []fault{
		{"the object store", "is killed", l.minio.Kill, l.minio.Start, ofServer},
		{"the object store", "is paused", l.minio.Pause, l.minio.Continue, ofServer},
		{"NATS", "is killed", l.nats.Kill, l.nats.Start, ofServer},
		{"NATS", "is paused", l.nats.Pause, l.nats.Continue, ofServer},
	}
	for _, p := range l.programs {
		all = append(all,
			fault{p.name, "is killed", p.process.Kill, p.process.Start, ofProgram},
			fault{p.name, "is stopped", p.process.Stop, p.process.Start, ofProgram},
			fault{p.name, "is paused", p.process.Pause, p.process.Continue, ofProgram},
			fault{"the connection of " + p.name + " to NATS", "is cut", p.toNATS.Cut, p.toNATS.Mend, ofServer},
			fault{"the connection of " + p.name + " to the object store", "is cut", p.toStore.Cut, p.toStore.Mend, ofServer},
		)
	}
	all = append(all, l.mirrorFaults...)
	for _, bucket := range []func(string) string{
		wire.RegistryBucket, wire.LedgerBucket, wire.StatusBucket, wire.CursorBucket, wire.NamesBucket, wire.IndexBucket,
		wire.GapsBucket, wire.DescriptionBucket, wire.DownloadsBucket, wire.LeaseBucket, wire.RequestBucket,
	} {
		name := bucket(site)
		all = append(all, fault{"bucket " + name, "is deleted", func() { l.deleteBucket(name) }, l.restoreBuckets, ofBucket})
	}
	return all
}

// deck gives the faults in a random order, all of them before one comes again.
type deck struct {
	random *rand.Rand
	all    []fault
	order  []int
}

func (d *deck) next() fault {
	if len(d.order) == 0 {
		d.order = d.random.Perm(len(d.all))
	}
	f := d.all[d.order[0]]
	d.order = d.order[1:]
	return f
}

// aWhile is how long a fault, and what follows it, lasts.
func (d *deck) aWhile() { time.Sleep(time.Duration(d.random.Int64N(int64(3 * time.Second)))) }

// round injects one fault, and in every third round a second one before the first
// has ended. Faults of buckets stand alone: the operator, too, needs NATS. A program has
// one at a time: one that is paused does not stop.
func (d *deck) round(t *testing.T, n int) {
	f := d.next()
	t.Logf("%s round %d: %s %s", time.Now().UTC().Format(time.TimeOnly), n, f.of, f.is)
	f.begin()
	d.aWhile()
	if n%3 == 0 && f.kind != ofBucket {
		if second := d.next(); second.kind != ofBucket && second.of != f.of {
			t.Logf("         and %s %s", second.of, second.is)
			second.begin()
			d.aWhile()
			if second.kind > f.kind {
				f, second = second, f
			}
			second.end()
		}
	}
	f.end()
	d.aWhile()
}

// TestFaults injects faults under load. At the end each object that has a receipt is
// listed once, with its bytes; each datagram that was ever in the stream of observations is
// once in a segment, and nothing else; the columns of the ledger agree, with the senders too; and a
// mirror that is pushed to and one that pulls have all of it.
func TestFaults(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	chosen := seed(t)
	t.Logf("SUBSTORM_TEST_SEED=%d", chosen)
	var senders []*sender
	for _, p := range l.pools {
		senders = append(senders, startSender(t, p))
	}
	l.startMirrors()
	w := l.startWitness()
	d := &deck{random: rand.New(rand.NewPCG(chosen, 0)), all: l.faults()}
	count := rounds(t)
	for n := range count {
		if t.Failed() {
			break
		}
		d.round(t, n+1)
	}
	for _, s := range senders {
		s.finish()
	}
	l.checkObjects(senders)
	stored := l.checkDatagrams(senders, w)
	l.checkTools(senders, stored, count >= 100)
	l.checkMirrors(senders, stored)
}
