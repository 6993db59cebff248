// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// FeedServer is one line about a FeedServer.
type FeedServer struct {
	Namespace string                 `json:"namespace"`
	Name      string                 `json:"name"`
	Site      string                 `json:"site"`
	Ready     metav1.ConditionStatus `json:"ready"`
	PodsReady int32                  `json:"podsReady"`
	PodsAsked int32                  `json:"podsAsked"`
	// Connections of consumers, and how many consumers are served; nil where no pod has reported.
	Connections *int32 `json:"connections,omitempty"`
	Consumers   *int32 `json:"consumers,omitempty"`
	URL         string `json:"url,omitempty"`
}

func (r *Report) addFeedServer(s *v1alpha1.FeedServer) {
	r.FeedServers = append(r.FeedServers, FeedServer{
		Namespace: s.Namespace, Name: s.Name, Site: s.Spec.SiteRef.Name, URL: s.Status.URL,
		Ready:     condition(s.Status.Conditions, v1alpha1.ConditionReady).Status,
		PodsReady: ptr.Deref(s.Status.ReadyReplicas, 0), PodsAsked: ptr.Deref(s.Spec.Replicas, v1alpha1.DefaultFeedServerReplicas),
		Connections: s.Status.ConnectionCount, Consumers: s.Status.ConsumerCount,
	})
	r.problems("feedserver/"+s.Name, s.Namespace, s.Generation, s.Status.ObservedGeneration, s.Status.Conditions, gatewayConditions)
}

func (r Report) printFeedServers(w io.Writer) {
	if len(r.FeedServers) == 0 {
		return
	}
	fmt.Fprintln(w, "FEED SERVER\tSITE\tREADY\tPODS\tCONNECTIONS\tCONSUMERS\tURL")
	for _, s := range r.FeedServers {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d/%d\t%s\t%s\t%s\n", r.name(s.Namespace, s.Name), s.Site, s.Ready,
			s.PodsReady, s.PodsAsked, reported(s.Connections), reported(s.Consumers), cmp.Or(s.URL, "-"))
	}
}

// reported is a figure, or that nobody knows it.
func reported(n *int32) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}
