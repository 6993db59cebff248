// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// shareEvents makes the two kinds of Events two views of the same objects, as with the API
// server: controllers write those of events.k8s.io, `kubectl describe` reads the others.
func (s *Server) shareEvents() error {
	var first, second *kind
	for _, k := range s.kinds {
		switch k.gvk {
		case corev1.SchemeGroupVersion.WithKind("Event"):
			first = k
		case eventsv1.SchemeGroupVersion.WithKind("Event"):
			second = k
		}
	}
	if first == nil || second == nil {
		return errors.New("one of the two kinds of Events is missing")
	}
	second.main.table = first.main.table
	second.main.show = func(object runtime.Object) runtime.Object {
		e, ok := object.(*corev1.Event)
		if !ok {
			return object
		}
		return &eventsv1.Event{ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, Series: (*eventsv1.EventSeries)(e.Series),
			ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance, Action: e.Action, Reason: e.Reason,
			Regarding: e.InvolvedObject, Related: e.Related, Note: e.Message, Type: e.Type,
			DeprecatedSource: e.Source, DeprecatedFirstTimestamp: e.FirstTimestamp, DeprecatedLastTimestamp: e.LastTimestamp, DeprecatedCount: e.Count}
	}
	second.main.keep = func(object runtime.Object) runtime.Object {
		e, ok := object.(*eventsv1.Event)
		if !ok {
			return object
		}
		return &corev1.Event{ObjectMeta: e.ObjectMeta, EventTime: e.EventTime, Series: (*corev1.EventSeries)(e.Series),
			ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance, Action: e.Action, Reason: e.Reason,
			InvolvedObject: e.Regarding, Related: e.Related, Message: e.Note, Type: e.Type,
			Source: e.DeprecatedSource, FirstTimestamp: e.DeprecatedFirstTimestamp, LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount}
	}
	return nil
}
