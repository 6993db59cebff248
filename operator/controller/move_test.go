// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// TestArchiveMoves takes the steps of docs/how-to/move-archive.md: a Site that is recreated with another bucket continues with the data
// that was copied there, with the streams, and with the revisions of the registry.
func TestArchiveMoves(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	w.applyPool("pool", ", service: {type: ClusterIP}")
	w.applyInstrument("camera", 30100, "")
	w.awaits("Site", "hub", "Ready", "True/Ready")
	g := w.gateway("pool", "pool-0")
	before := g.awaitPort("camera", 30100)
	js := w.nats.JetStream(t)
	if _, err := js.Publish(t.Context(), wire.NoticeSubject("hub", "camera"), []byte("announced")); err != nil {
		t.Fatal(err)
	}
	old, key, picture := w.minio.Bucket(t, w.bucket), "o/hub/camera/n/a.jpg", []byte("a picture")
	if err := old.Put(t.Context(), key, bytes.NewReader(picture), int64(len(picture)), objectstore.PutOptions{Metadata: map[string]string{"name": "a.jpg"}}); err != nil {
		t.Fatal(err)
	}
	first, made := w.marker("hub"), w.created("NOTICE_hub")

	moved := testenv.BucketName()
	err := w.Patch(t.Context(), w.site("hub"), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"objectStore":{"bucket":"`+moved+`"}}}`)))
	if !apierrors.IsInvalid(err) {
		t.Fatalf("a Site that stands takes another bucket: %v", err)
	}
	w.removeSite("hub")
	to := w.minio.Bucket(t, moved)
	copied(t, old, to)
	w.bucket = moved
	w.applySite("hub", "hub")
	w.awaits("Site", "hub", "Ready", "True/Ready")

	if m := w.marker("hub"); m.UID == first.UID || m.UID != string(w.object("Site", "hub").GetUID()) {
		t.Errorf("marker %+v after %+v", m, first)
	}
	if body, info, err := to.Get(t.Context(), key, objectstore.All); err != nil {
		t.Error(err)
	} else if is, err := io.ReadAll(body); err != nil || !bytes.Equal(is, picture) || info.Size != int64(len(picture)) {
		t.Errorf("the picture is %q, %v", is, err)
	}
	if again := w.created("NOTICE_hub"); !again.CachedInfo().Created.Equal(made.CachedInfo().Created) || again.CachedInfo().State.Msgs != 1 {
		t.Errorf("the stream is another one, or empty: %+v", again.CachedInfo())
	}
	w.applyInstrument("camera", 30101, "")
	g.awaitPort("camera", 30101)
	eventually(t, "a change has a later revision than those of the Site before", func() error {
		if after, err := g.entry("camera"); err != nil || after.Revision <= before.Revision || after.UID != before.UID {
			return errors.Join(err, errors.New("the entry is not the next one"))
		}
		return nil
	})
}

// created returns an existing stream.
func (w *world) created(name string) jetstream.Stream {
	w.t.Helper()
	s, err := w.nats.JetStream(w.t).Stream(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// copied copies what a bucket holds into another one.
func copied(t *testing.T, from, to objectstore.Store) {
	t.Helper()
	for listed, err := range from.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		info, err := from.Head(t.Context(), listed.Key)
		if err != nil {
			t.Fatal(err)
		}
		body, _, err := from.Get(t.Context(), listed.Key, objectstore.All)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(body)
		_ = body.Close()
		if err == nil {
			err = to.Put(t.Context(), listed.Key, bytes.NewReader(data), info.Size, objectstore.PutOptions{ContentType: info.ContentType, Metadata: info.Metadata})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
