// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator"
)

func newClient(t *testing.T, s *Server) client.Client {
	t.Helper()
	scheme, err := operator.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(s.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// family is a StatefulSet and a Secret that it owns, which blocks its deletion.
func family(t *testing.T, c client.Client, finalizers ...string) (owner *appsv1.StatefulSet, owned *corev1.Secret) {
	t.Helper()
	owner = &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "owner"}}
	if err := c.Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	blocks := true
	owned = secret("owned", "x")
	owned.Finalizers = finalizers
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "owner", UID: owner.UID, BlockOwnerDeletion: &blocks}}
	if err := c.Create(t.Context(), owned); err != nil {
		t.Fatal(err)
	}
	return owner, owned
}

func eventually(t *testing.T, what string, is func() error) {
	t.Helper()
	var err error
	for range testenv.Attempts() {
		if err = is(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

func gone(t *testing.T, c client.Client, object client.Object) error {
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
		return fmt.Errorf("%s: %v", object.GetName(), err)
	}
	return nil
}

func TestDependentsGoWithTheirOwner(t *testing.T) {
	c := newClient(t, start(t, t.TempDir()))
	owner, owned := family(t, c)
	if err := c.Delete(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are gone", func() error { return errors.Join(gone(t, c, owner), gone(t, c, owned)) })
}

// TestDependentsGoAfterARestart: the owner was deleted while the server was down.
func TestDependentsGoAfterARestart(t *testing.T) {
	dir := t.TempDir()
	t.Run("before", func(t *testing.T) {
		s := start(t, dir)
		c := newClient(t, s)
		_, owned := family(t, c)
		key := types.NamespacedName{Namespace: "default", Name: owned.Name}
		// As if the process had been killed between the owner's deletion and the collection.
		object, version, _ := s.store.get(s.store.tables["secrets"], key)
		orphaned := object.DeepCopyObject().(*corev1.Secret)
		orphaned.OwnerReferences[0].UID = "gone"
		if _, err := s.store.write(s.store.tables["secrets"], key, version, orphaned, false); err != nil {
			t.Fatal(err)
		}
	})
	c := newClient(t, start(t, dir))
	eventually(t, "the dependent is gone", func() error { return gone(t, c, secret("owned", "")) })
}

func TestForegroundDeletionWaits(t *testing.T) {
	c := newClient(t, start(t, t.TempDir()))
	owner, owned := family(t, c, "test/holds")
	if err := c.Delete(t.Context(), owner, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the dependent is being deleted", func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(owned), owned); err != nil || owned.DeletionTimestamp == nil {
			return fmt.Errorf("not yet: %w", err)
		}
		return nil
	})
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(owner), owner); err != nil || owner.DeletionTimestamp == nil {
		t.Fatalf("the owner did not wait: %v", err)
	}
	// A patch, as the collector may write the object again meanwhile.
	if err := c.Patch(t.Context(), owned, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are gone", func() error { return errors.Join(gone(t, c, owner), gone(t, c, owned)) })
}

func TestOrphans(t *testing.T) {
	c := newClient(t, start(t, t.TempDir()))
	owner, owned := family(t, c)
	if err := c.Delete(t.Context(), owner, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the owner is gone", func() error { return gone(t, c, owner) })
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(owned), owned); err != nil || len(owned.OwnerReferences) > 0 {
		t.Errorf("the orphan has owners %v: %v", owned.OwnerReferences, err)
	}
}

// TestEventsOfBothKinds: what is written as one is read as the other, and there is an end to them.
func TestEventsOfBothKinds(t *testing.T) {
	s := start(t, t.TempDir())
	c := newClient(t, s)
	for i := range eventsKept + 50 {
		e := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("e", i)}, Reason: "Told", Note: "why", Action: "Tell",
			Type: corev1.EventTypeNormal, ReportingController: "test", EventTime: metav1.NowMicro(), Regarding: corev1.ObjectReference{Kind: "Site", Name: "hub"}}
		if err := c.Create(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	old, err := client.New(s.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "no more Events than are kept", func() error {
		list := &corev1.EventList{}
		if err := old.List(t.Context(), list, client.MatchingFields{"involvedObject.name": "hub"}); err != nil {
			return err
		}
		if n := len(list.Items); n == 0 || n > eventsKept || list.Items[0].Message != "why" {
			return fmt.Errorf("%d Events", n)
		}
		return nil
	})
}
