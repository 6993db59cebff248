// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// leaf starts a NATS server elsewhere that links to ours with the credentials in
// the Secret, and has the streams of a Site.
func (w *world) leaf(code string) *testenv.NATSServer {
	w.t.Helper()
	server := w.leafServer(code)
	testenv.CreateSite(w.t, server.JetStream(w.t), code)
	return server
}

// leafServer is a leaf that has no streams.
func (w *world) leafServer(code string) *testenv.NATSServer {
	w.t.Helper()
	var secret corev1.Secret
	eventually(w.t, "the leaf's credentials should be there", func() error {
		return w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "hub-leaf-" + code}, &secret)
	})
	creds := filepath.Join(w.t.TempDir(), "user.creds")
	if err := os.WriteFile(creds, secret.Data["user.creds"], 0o600); err != nil {
		w.t.Fatal(err)
	}
	if nc, err := nats.Connect(w.nats.URL(), nats.Secure(w.nats.CA.ClientTLS()), nats.UserCredentials(creds)); err == nil {
		nc.Close()
		w.t.Error("a client came in with the credentials of a leaf")
	}
	return testenv.NATS(w.t, testenv.NATSOptions{Operator: true, Domain: code,
		LeafOf: &testenv.LeafLink{Address: w.nats.LeafAddress(), CA: w.nats.CA, Creds: creds}})
}

func (w *world) setLeaves(site, leaves string) {
	w.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"leaves":%s}}`, leaves))
	if err := w.Patch(w.t.Context(), w.site(site), patch); err != nil {
		w.t.Fatal(err)
	}
}

// messages returns what a stream holds of the leaf's.
func (w *world) messages(js jetstream.JetStream, stream, subject string) uint64 {
	w.t.Helper()
	s, err := js.Stream(w.t.Context(), stream)
	if err != nil {
		w.t.Fatal(err)
	}
	info, err := s.Info(w.t.Context(), jetstream.WithSubjectFilter(subject))
	if err != nil {
		w.t.Fatal(err)
	}
	return info.State.Subjects[subject]
}

// A leaf that is added to a Site that works is sourced from in place, with all that
// it has; it is away and comes back; removing it deletes nothing.
func TestLeaf(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	hub := w.nats.JetStream(t)
	own, theirs := wire.NoticeSubject("hub", "camera"), wire.NoticeSubject("north", "camera")
	publish := func(js jetstream.JetStream, subject string) {
		t.Helper()
		if _, err := js.Publish(t.Context(), subject, []byte("notice")); err != nil {
			t.Fatal(err)
		}
	}
	publish(hub, own)
	w.setLeaves("hub", `[{"code":"north"}]`)
	w.awaits("Site", "hub", "LeavesReachable", "False/LeafAway")
	server := w.leaf("north")
	publish(server.JetStream(t), theirs)
	publish(hub, own)
	w.awaits("Site", "hub", "LeavesReachable", "True/Reachable")
	sourced := func(want uint64) func() error {
		return func() error {
			if n := w.messages(hub, "NOTICE_hub", theirs); n != want {
				return fmt.Errorf("there are %d of %d", n, want)
			}
			return nil
		}
	}
	eventually(t, "what the leaf had should come", sourced(1))
	if n := w.messages(hub, "NOTICE_hub", own); n != 2 {
		t.Errorf("the stream holds %d of our own 2 messages", n)
	}
	var status v1alpha1.SiteStatus
	w.status("Site", "hub", &status)
	if len(status.Leaves) != 1 || status.Leaves[0].Code != "north" || status.Leaves[0].Link != v1alpha1.LeafConnected || status.Leaves[0].LastSeenTime == nil {
		t.Errorf("status.leaves: %+v", status.Leaves)
	}

	server.Kill()
	c := w.awaits("Site", "hub", "LeavesReachable", "False/LeafAway")
	says(t, c, "1 of 1 leaves are away: north, last seen "+time.Now().UTC().Format("2006-01-02"), "comes when the link is back")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	server.Start()
	publish(server.JetStream(t), theirs)
	w.awaits("Site", "hub", "LeavesReachable", "True/Reachable")
	eventually(t, "what came meanwhile should come", sourced(2))

	late := wire.BackfillSubject("north", "camera")
	publish(server.JetStream(t), late)
	eventually(t, "what came late at the leaf should come", func() error {
		if n := w.messages(hub, "NOTICE_hub", late); n != 1 {
			return fmt.Errorf("there are %d of 1", n)
		}
		return nil
	})

	w.setLeaves("hub", "null")
	eventually(t, "nothing should be sourced any more", func() error {
		if sources := w.stream("NOTICE_hub").Sources; len(sources) > 0 {
			return fmt.Errorf("sources: %v", sources)
		}
		if find(conditionsOf(w.object("Site", "hub")), "LeavesReachable") != nil {
			return errors.New("the condition still stands")
		}
		return nil
	})
	publish(server.JetStream(t), theirs)
	publish(hub, own)
	if err := sourced(2)(); err != nil {
		t.Errorf("of the leaf's messages %v", err)
	}
	if n := w.messages(server.JetStream(t), "NOTICE_north", theirs); n != 3 {
		t.Errorf("the leaf holds %d of its 3 messages", n)
	}
}
