// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/observed"
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
		PodsReady: ptr.Deref(s.Status.ReadyReplicas, 0), PodsAsked: podsWanted(&s.Status.Autoscaling, ptr.Deref(s.Spec.Replicas, v1alpha1.DefaultFeedServerReplicas)),
		Connections: s.Status.ConnectionCount, Consumers: s.Status.ConsumerCount,
	})
	r.problems("feedserver", s, s.Status.ObservedGeneration, s.Status.Conditions, gatewayConditions)
}

// podsWanted is how many pods a pool is to have, by its status: as many as its spec says, but for floors, ceilings and spools.
func podsWanted(status *v1alpha1.AutoscalingStatus, spec int32) int32 {
	return ptr.Deref(status.Replicas, spec)
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

// reported is a figure, or "-" if it is unknown.
func reported(n *int32) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

// readFeedReports returns what the feed servers of a Site last reported of themselves, and of FeedConsumers by name.
func readFeedReports(ctx context.Context, js jetstream.JetStream, code string) (servers []observed.FeedServerReport, said map[string][]observed.ConsumerReport, err error) {
	err = backend.Entries(ctx, js, wire.StatusBucket(code), wire.FeedServerStatusKey("*"), func(e backend.Entry) error {
		status, err := wire.Decode[wire.FeedServerStatus](e.Data)
		if err != nil {
			return fmt.Errorf("report %s: %w", e.Key, err)
		}
		servers = append(servers, observed.FeedServerReport{FeedServerStatus: status, Seen: e.Time})
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	said = map[string][]observed.ConsumerReport{}
	err = backend.Entries(ctx, js, wire.StatusBucket(code), wire.ConsumerStatusKey("*", "*"), func(e backend.Entry) error {
		consumer, pod, ok := wire.ParseConsumerStatusKey(e.Key)
		if !ok {
			return nil
		}
		status, err := wire.Decode[wire.ConsumerStatus](e.Data)
		if err != nil {
			return fmt.Errorf("report %s: %w", e.Key, err)
		}
		said[consumer] = append(said[consumer], observed.ConsumerReport{ConsumerStatus: status, Pod: pod, Seen: e.Time})
		return nil
	})
	return servers, said, err
}
