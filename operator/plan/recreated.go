// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// recreatedShown is for how long it is shown that a stream was deleted.
const recreatedShown = 24 * time.Hour

// StoodStreams are the streams that existed on the servers that the Site names, buckets included: those that are missing were deleted from
// outside, possibly while no operator ran.
func StoodStreams(site *v1alpha1.Site) []string {
	if js := site.Status.JetStream; js != nil && slices.Equal(js.Servers, site.Spec.JetStream.Servers) {
		return js.Streams
	}
	return nil
}

// standing is what StoodStreams reads: the earlier status until all streams exist.
func (v SiteView) standing() *v1alpha1.JetStreamState {
	if v.Backends.Standing == nil {
		return v.Site.Status.JetStream
	}
	return &v1alpha1.JetStreamState{Servers: v.Site.Spec.JetStream.Servers, Streams: v.Backends.Standing}
}

// recreated are the streams and buckets that were recently deleted from outside, by name, including those in the status, where a restarted
// operator finds them.
func (v SiteView) recreated() []v1alpha1.RecreatedStream {
	found := slices.Clone(v.Site.Status.RecreatedStreams)
	for name, at := range v.Backends.Recreated {
		found = append(found, v1alpha1.RecreatedStream{Name: name, RecreatedTime: metav1.NewTime(at.UTC().Truncate(time.Second))})
	}
	found = slices.DeleteFunc(found, func(s v1alpha1.RecreatedStream) bool { return v.Now.Sub(s.RecreatedTime.Time) >= recreatedShown })
	slices.SortFunc(found, func(a, b v1alpha1.RecreatedStream) int { // of one name the latest first
		if a.Name != b.Name {
			return strings.Compare(a.Name, b.Name)
		}
		return b.RecreatedTime.Compare(a.RecreatedTime.Time)
	})
	return slices.CompactFunc(found, func(a, b v1alpha1.RecreatedStream) bool { return a.Name == b.Name })
}

// streamsRecreated: streams or buckets of the Site were deleted from outside.
func (v SiteView) streamsRecreated() (finding.Finding, bool) {
	var names []string
	var last time.Time
	for _, s := range v.recreated() {
		names = append(names, s.Name)
		if s.RecreatedTime.After(last) {
			last = s.RecreatedTime.Time
		}
	}
	return finding.Bad(v1alpha1.ReasonRecreated, fmt.Sprintf(
		"somebody else than the operator has deleted %s; made anew, the last at %s. What was in it and not archived is lost: "+
			"substorm archive gaps names what is missing of instruments, docs/explanation/lost-jetstream.md says what each bucket is made from again. Find out whose credentials may delete streams",
		strings.Join(names, ", "), wire.FormatTime(last))), len(names) > 0
}
