// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/up/manifests"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
)

// judgeEvery is how often it is looked whether all is judged.
const judgeEvery = 300 * time.Millisecond

// judgedKinds are those that the operator accepts or not.
var judgedKinds = []string{"Site", "IngestGateway", "FeedServer", "Instrument", "Feed", "FeedConsumer", "MirrorPartner"}

// judged is what of an object says whether it is accepted.
type judged struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

func (j *judged) String() string { return fmt.Sprintf("%s %q", j.Kind, j.Name) }

// accepted is the condition Accepted of what the object is now; nil where the operator has not judged that yet.
func (j *judged) accepted() *metav1.Condition {
	for i, c := range j.Status.Conditions {
		if c.Type == v1alpha1.ConditionAccepted && c.ObservedGeneration == j.Generation {
			return &j.Status.Conditions[i]
		}
	}
	return nil
}

// judgedObjects are all objects that the operator accepts or not.
func (s *site) judgedObjects(ctx context.Context) ([]judged, error) {
	var all []judged
	for _, kind := range judgedKinds {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
		if err := s.client.List(ctx, &list); err != nil {
			return nil, err
		}
		for i := range list.Items {
			var j judged
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &j); err != nil {
				return nil, fmt.Errorf("%s %q: %w", kind, list.Items[i].GetName(), err)
			}
			all = append(all, j)
		}
	}
	return all, nil
}

// tellNotAccepted says which objects are not accepted, and why, once all are judged, or after addressesWait.
func (s *site) tellNotAccepted(ctx context.Context) {
	var all []judged
	for began := time.Now(); ; {
		var err error
		if all, err = s.judgedObjects(ctx); err != nil {
			return
		}
		unknown := slices.ContainsFunc(all, func(j judged) bool { return j.accepted() == nil })
		if !unknown || time.Since(began) >= addressesWait || !retry.Sleep(ctx, judgeEvery) {
			break
		}
	}
	for i := range all {
		if c := all[i].accepted(); c != nil && c.Status == metav1.ConditionFalse {
			fmt.Fprintf(s.cfg.Stderr, "  not accepted %s: %s\n", &all[i], c.Message)
		}
	}
}

// tellUnapplied says what of the files is not applied, here and in the condition ManifestsApplied of the Site.
func (s *site) tellUnapplied(m *plan.Manifests) {
	before := s.unapplied.Swap(m)
	if m.Whole {
		fmt.Fprintln(s.cfg.Stderr, "The files have changed, and nothing of the change is applied; what was applied before holds:")
	} else if len(m.Problems) > 0 {
		fmt.Fprintln(s.cfg.Stderr, "The files have changed, and all is applied but:")
	} else if before != nil && len(before.Problems) > 0 {
		fmt.Fprintln(s.cfg.Stderr, "The files are applied.")
	}
	for _, problem := range m.Problems {
		fmt.Fprintf(s.cfg.Stderr, "  not applied  %s\n", problem)
	}
}

// tellChange says what of the files was applied, where that receives, and what is not accepted.
func (s *site) tellChange(ctx context.Context, changed []*manifests.Object) {
	for _, o := range changed {
		fmt.Fprintf(s.cfg.Stderr, "  applied      %s\n", o)
	}
	s.tellNotAccepted(ctx)
	for _, o := range changed {
		var instrument v1alpha1.Instrument
		if o.GetKind() != "Instrument" || s.client.Get(ctx, client.ObjectKeyFromObject(o.Unstructured), &instrument) != nil {
			continue
		}
		for _, l := range instrument.Status.Listeners {
			tellListener(s.cfg.Stderr, instrument.Name, l)
		}
	}
}
