// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// errGone stands for an object that no longer exists.
var errGone = errors.New("there is none")

// isGone waits until an object is not there.
func (w *world) isGone(kind, name string) {
	w.t.Helper()
	w.vanishes(kind+" "+name, func() error {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
		err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, u)
		if apierrors.IsNotFound(err) {
			return errGone
		}
		return err
	}, errGone)
}

func (w *world) streamIsGone(name string) {
	w.t.Helper()
	js := w.nats.JetStream(w.t)
	w.vanishes("stream "+name, func() error { _, err := js.Stream(w.t.Context(), name); return err }, jetstream.ErrStreamNotFound)
}

// awaitFinalizer waits until an object has the finalizer, or has none.
func (w *world) awaitFinalizer(kind, name string, want bool) {
	w.t.Helper()
	eventually(w.t, "the finalizer of "+kind+" "+name, func() error {
		if is := w.object(kind, name).GetFinalizers(); slices.Contains(is, v1alpha1.FinalizerStream) != want {
			return errors.New("it has " + v1alpha1.FinalizerStream + ", or has not")
		}
		return nil
	})
}

// newDoomedWorld has a Feed whose stream goes with it.
func newDoomedWorld(t *testing.T) *world {
	w := newFeedWorld(t)
	w.applyFeed("doomed", ", stream: {maxSize: 8Mi}, deletionPolicy: Delete")
	w.awaits("Feed", "doomed", "Ready", "True/Ready")
	w.awaitFinalizer("Feed", "doomed", true)
	w.awaitFinalizer("Site", "hub", true)
	return w
}

// TestFeedDeletedWhileJetStreamIsAway waits for it, and says so.
func TestFeedDeletedWhileJetStreamIsAway(t *testing.T) {
	w := newDoomedWorld(t)
	w.nats.Stop()
	w.awaits("Site", "hub", "JetStreamReachable", "False/Unreachable")
	w.remove(w.feed("doomed"))
	c := w.awaits("Feed", "doomed", "DeletionHeld", "True/Unreachable")
	says(t, c, "FEED_hub_doomed", "JetStream", "it waits until")
	w.sawEvent("doomed", "DeletionHeld", "Unreachable", "Warning")
	w.nats.Start()
	w.isGone("Feed", "doomed")
	w.streamIsGone("FEED_hub_doomed")
	w.awaitFinalizer("Site", "hub", false)
}

// TestFeedDeletionGivesUp: an event names the stream, which goes when JetStream is back.
func TestFeedDeletionGivesUp(t *testing.T) {
	w := newDoomedWorld(t)
	w.stop()
	w.deletionLimit = 2 * time.Second
	w.start()
	w.awaits("Site", "hub", "JetStreamReachable", "True/Reachable")
	w.nats.Stop()
	w.awaits("Site", "hub", "JetStreamReachable", "False/Unreachable")
	w.remove(w.feed("doomed"))
	w.isGone("Feed", "doomed")
	w.sawEvent("doomed", "Delete", "StreamLeft", "Warning")
	w.awaitFinalizer("Site", "hub", true) // a stream may still be there
	w.nats.Start()
	w.streamIsGone("FEED_hub_doomed")
	w.awaitFinalizer("Site", "hub", false)
}

// TestSiteAndFeedDeletedTogether strand nothing.
func TestSiteAndFeedDeletedTogether(t *testing.T) {
	w := newDoomedWorld(t)
	w.remove(w.object("Site", "hub"))
	w.remove(w.feed("doomed"))
	w.isGone("Feed", "doomed")
	w.isGone("Site", "hub")
	w.streamIsGone("FEED_hub_doomed")
	w.streamInfo("OBS_hub")
}

// TestRetainEndsTheWait: a Feed whose stream stays has no finalizer, and keeps no Site.
func TestRetainEndsTheWait(t *testing.T) {
	w := newDoomedWorld(t)
	w.remove(w.object("Site", "hub"))
	c := w.awaits("Site", "hub", "DeletionHeld", "True/FeedsRemain")
	says(t, c, "doomed", "delete them", "Retain")
	w.applyFeed("doomed", ", stream: {maxSize: 8Mi}")
	w.awaitFinalizer("Feed", "doomed", false)
	w.isGone("Site", "hub")
	w.remove(w.feed("doomed"))
	w.isGone("Feed", "doomed")
	w.streamInfo("FEED_hub_doomed")
}

// TestSiteDeletionGivesUp: it is gone after the limit, and an event names the streams.
func TestSiteDeletionGivesUp(t *testing.T) {
	w := newDoomedWorld(t)
	w.stop()
	w.deletionLimit = 2 * time.Second
	w.start()
	w.remove(w.object("Site", "hub"))
	w.isGone("Site", "hub")
	w.sawEvent("hub", "Delete", "StreamLeft", "Warning")
	w.streamInfo("FEED_hub_doomed")
	w.remove(w.feed("doomed")) // its stream cannot be removed
	w.isGone("Feed", "doomed")
	w.sawEvent("doomed", "Delete", "StreamLeft", "Warning")
}
