// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// operatorProcess is the operator's program, one of several that contend for a Lease.
type operatorProcess struct {
	t    *testing.T
	name string
	log  string
	cmd  *exec.Cmd
	over chan error
}

func (w *world) startProgram(program, name string) *operatorProcess {
	w.t.Helper()
	o := &operatorProcess{t: w.t, name: name, log: filepath.Join(w.t.TempDir(), name+".log"), over: make(chan error, 1)}
	log, err := os.Create(o.log)
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	o.cmd = exec.Command(program, "--namespace", w.namespace, "--watch-namespaces", w.namespace, "--metrics-address", "0", "--probe-address", "0",
		"--gateway-image", "substorm/ingest-gateway:dev", "--feed-server-image", "substorm/feed-server:dev", "--archivist-image", "substorm/archivist:dev", "--mirror-image", "substorm/mirror-jobs:dev")
	kubeconfig := w.api.Kubeconfig(w.t, name+"-"+w.namespace, "system:masters")
	if w.toAPI != nil {
		w.leadThrough(kubeconfig)
	}
	o.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	o.cmd.Stdout, o.cmd.Stderr = log, log
	if err := o.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() { o.over <- o.cmd.Wait() }()
	w.t.Cleanup(func() {
		_ = o.cmd.Process.Kill()
		if w.t.Failed() {
			w.t.Logf("the end of the log of operator %s:\n%s", name, o.logTail())
		}
	})
	return o
}

func (o *operatorProcess) signal(s syscall.Signal) {
	o.t.Helper()
	if err := o.cmd.Process.Signal(s); err != nil {
		o.t.Fatalf("operator %s: %v", o.name, err)
	}
}

func (o *operatorProcess) logTail() []byte {
	data, _ := os.ReadFile(o.log)
	return data[max(0, len(data)-8000):]
}

// leader is who holds the Lease.
func (w *world) leader() (string, error) {
	var leases coordinationv1.LeaseList
	if err := w.List(w.t.Context(), &leases, client.InNamespace(w.namespace)); err != nil {
		return "", err
	}
	if len(leases.Items) != 1 || leases.Items[0].Spec.HolderIdentity == nil {
		return "", errors.New("nobody leads")
	}
	return *leases.Items[0].Spec.HolderIdentity, nil
}

// awaitLeader waits until another operator than the previous leader leads.
func (w *world) awaitLeader(before string) (leader string) {
	w.t.Helper()
	eventually(w.t, "a leader", func() (err error) {
		if leader, err = w.leader(); err == nil && (leader == "" || leader == before) {
			err = fmt.Errorf("%q leads", leader)
		}
		return err
	})
	return leader
}

// manyInstruments and the marker are so few that the registry's writer sends them one by one: it can be stopped between two.
const manyInstruments = 15

func (w *world) applyMany(from, to int, repeatWindow string) {
	w.t.Helper()
	for i := from; i < to; i++ {
		w.applyInstrument(fmt.Sprintf("camera-%03d", i), 30100+i, fmt.Sprintf(", archive: {repeatWindow: %s}", repeatWindow))
	}
}

// entryIs distinguishes an Instrument's entry from the one before.
type entryIs struct {
	window time.Duration
	held   bool
}

// counts counts the registry's entries by what they are.
func (g *gateway) counts() (map[entryIs]int, error) {
	all := map[entryIs]int{}
	err := g.entries(func(e jetstream.KeyValueEntry) error {
		if _, is := wire.ParseRegistryInstrumentKey(e.Key()); !is {
			return nil
		}
		entry, err := wire.Decode[wire.InstrumentEntry](e.Value())
		all[entryIs{time.Duration(entry.RepeatWindowMillis) * time.Millisecond, entry.LegalHold}]++
		return err
	})
	return all, err
}

func (g *gateway) entries(f func(jetstream.KeyValueEntry) error) error {
	kv, err := g.js.KeyValue(g.t.Context(), wire.RegistryBucket("hub"))
	if err != nil {
		return err
	}
	return stream.Entries(g.t.Context(), g.js, kv, ">", f)
}

func (g *gateway) awaitCounts(what string, want map[entryIs]int) {
	g.t.Helper()
	eventually(g.t, what, func() error {
		have, err := g.counts()
		for is, n := range want {
			if err == nil && have[is] != n {
				err = fmt.Errorf("the entries are %v", have)
			}
		}
		return err
	})
}

// pauseInAPass stops the leader while it writes the registry: some entries have the Site's legal hold, others not yet, or have
// it no more. It returns whether they are to have it.
func (w *world) pauseInAPass(g *gateway, leader *operatorProcess, window time.Duration) (held bool) {
	w.t.Helper()
	kv, err := g.js.KeyValue(w.t.Context(), wire.RegistryBucket("hub"))
	if err != nil {
		w.t.Fatal(err)
	}
	for range 20 {
		held = !held
		changes, err := kv.WatchAll(w.t.Context(), jetstream.UpdatesOnly())
		if err != nil {
			w.t.Fatal(err)
		}
		w.patchSite(map[bool]string{true: `{"spec":{"legalHold":"All"}}`, false: `{"spec":{"legalHold":"None"}}`}[held])
		<-changes.Updates()
		leader.signal(syscall.SIGSTOP)
		if err := changes.Stop(); err != nil {
			w.t.Fatal(err)
		}
		have, err := g.counts()
		if err != nil {
			w.t.Fatal(err)
		}
		if n := have[entryIs{window, held}]; n > 0 && n < manyInstruments {
			w.t.Logf("it was stopped when %d entries were written", n)
			return held
		}
		leader.signal(syscall.SIGCONT)
		g.awaitCounts("all entries follow", map[entryIs]int{{window, held}: manyInstruments})
	}
	w.t.Fatal("the leader was never caught in the middle of a pass: this test shows nothing")
	return false
}

// TestLeaderLostInAPass: an operator that is paused while it writes the registry loses its lease. It resumes when another has taken its
// place and written newer entries: it undoes none of them, and ends.
func TestLeaderLostInAPass(t *testing.T) {
	program := testenv.Program(t, "operator")
	w := newWorld(t)
	first := w.startProgram(program, "first")
	firstIs := w.awaitLeader("")
	second := w.startProgram(program, "second")
	w.applySite("hub", "hub")
	w.applyPool("pool", fmt.Sprintf(", ports: {first: 30100, last: %d}, service: {type: ClusterIP}", 30100+manyInstruments-1))
	w.applyMany(0, manyInstruments, "1h")
	g := w.gateway("pool", "pool-0")
	g.awaitCounts("all entries", map[entryIs]int{{time.Hour, false}: manyInstruments})

	held := w.pauseInAPass(g, first, time.Hour)
	w.awaitLeader(firstIs)
	g.awaitCounts("the second operator ends what the first began", map[entryIs]int{{time.Hour, held}: manyInstruments})
	w.applyMany(0, 5, "11h")
	w.remove(&v1alpha1.Instrument{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "camera-014"}})
	g.awaitCounts("what the second operator changes", map[entryIs]int{{11 * time.Hour, held}: 5, {time.Hour, held}: manyInstruments - 6})
	before := g.registry()

	first.signal(syscall.SIGCONT)
	select {
	case err := <-first.over:
		if err == nil {
			t.Error("the first operator ended as if all were well")
		}
	case <-time.After(patience):
		t.Fatal("the first operator runs on without its lease")
	}
	if after := g.registry(); !slices.Equal(before, after) {
		t.Errorf("the registry was\n%s\nand is\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	w.applyMany(5, 6, "12h")
	g.awaitCounts("the second operator goes on", map[entryIs]int{{12 * time.Hour, held}: 1})
	eventually(t, "statuses of the newest generations", func() error {
		var all v1alpha1.InstrumentList
		if err := w.List(t.Context(), &all, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		for _, inst := range all.Items {
			if c := find(inst.Status.Conditions, v1alpha1.ConditionAccepted); c == nil || c.ObservedGeneration != inst.Generation {
				return fmt.Errorf("%s, generation %d, has %+v", inst.Name, inst.Generation, c)
			}
		}
		return nil
	})
	if bytes.Contains(second.logTail(), []byte("this one no longer leads")) {
		t.Error("the second operator takes itself for replaced")
	}
}

// registry returns the registry's entries, with their revisions.
func (g *gateway) registry() (all []string) {
	g.t.Helper()
	err := g.entries(func(e jetstream.KeyValueEntry) error {
		all = append(all, fmt.Sprintf("%d %s %s", e.Revision(), e.Key(), e.Value()))
		return nil
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return all
}
