// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// Marker is the marker of a Site in its bucket and its streams. Cluster is the uid of the namespace kube-system, or the operator's
// --cluster-id.
func Marker(site *v1alpha1.Site, cluster string) wire.SiteMarker {
	return wire.SiteMarker{
		Code:      site.Spec.Code,
		UID:       string(site.UID),
		Namespace: site.Namespace,
		Name:      site.Name,
		Cluster:   cluster,
	}
}

// MarkerAction is how to treat a marker that was found.
type MarkerAction string

// The values of MarkerAction.
const (
	// MarkerKeep: it is ours.
	MarkerKeep MarkerAction = "Keep"
	// MarkerWrite: there is none, or ours may replace it.
	MarkerWrite MarkerAction = "Write"
	// MarkerRespect: the code is another Site's there. Keep out.
	MarkerRespect MarkerAction = "Respect"
)

// JudgeMarker compares the marker that was found (nil: none) with ours. A Site that was deleted and created again under its old name
// continues with its archive; a Site that moved needs the annotation AnnotationTakeOver.
func JudgeMarker(ours wire.SiteMarker, found *wire.SiteMarker, takeOver string) MarkerAction {
	switch {
	case found == nil:
		return MarkerWrite
	case *found == ours:
		return MarkerKeep
	case found.Cluster == ours.Cluster && found.Namespace == ours.Namespace && found.Name == ours.Name:
		return MarkerWrite
	case takeOver != "" && takeOver == found.UID:
		return MarkerWrite
	default:
		return MarkerRespect
	}
}

// MarkerConflict reports whose the code is in a place (a bucket, a stream), and what to do.
func MarkerConflict(ours, found wire.SiteMarker, place string) finding.Finding {
	whose := fmt.Sprintf("Site %s/%s of this cluster", found.Namespace, found.Name)
	if found.Cluster != ours.Cluster {
		whose = fmt.Sprintf("Site %s/%s of another cluster (%s)", found.Namespace, found.Name, found.Cluster)
	}
	return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf(
		"code %q belongs in %s to %s: make this Site anew with another code or another backend. "+
			"If that Site is gone for good and this one continues its archive, annotate this one with %s=%s",
		ours.Code, place, whose, v1alpha1.AnnotationTakeOver, found.UID))
}
