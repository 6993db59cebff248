// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// Resources are what a Report is made of.
type Resources struct {
	Sites       []v1alpha1.Site
	Gateways    []v1alpha1.IngestGateway
	Instruments []v1alpha1.Instrument
	Feeds       []v1alpha1.Feed
	Consumers   []v1alpha1.FeedConsumer
}

// Feed is a line of the Report.
type Feed struct {
	Namespace         string                 `json:"namespace"`
	Name              string                 `json:"name"`
	Site              string                 `json:"site"`
	Ready             metav1.ConditionStatus `json:"ready"`
	Instruments       int32                  `json:"instruments"`
	MessagesPerMinute int64                  `json:"messagesPerMinute"`
	Consumers         int32                  `json:"consumers"`
}

// Consumer is a FeedConsumer's line of the Report.
type Consumer struct {
	Namespace string                 `json:"namespace"`
	Name      string                 `json:"name"`
	Feed      string                 `json:"feed"`
	Delivery  v1alpha1.DeliveryType  `json:"delivery"`
	Ready     metav1.ConditionStatus `json:"ready"`
	// State is empty where no feed server has reported about it.
	State       v1alpha1.ConsumerState `json:"state,omitempty"`
	LagMessages int64                  `json:"lagMessages"`
	LagSeconds  int64                  `json:"lagSeconds"`
	Dropped     int64                  `json:"dropped"`
	Gaps        int64                  `json:"gaps"`
}

func (r *Report) addFeed(f *v1alpha1.Feed) {
	r.Feeds = append(r.Feeds, Feed{
		Namespace: f.Namespace, Name: f.Name, Site: f.Spec.SiteRef.Name, Ready: condition(f.Status.Conditions, v1alpha1.ConditionReady).Status,
		Instruments: f.Status.Instruments, MessagesPerMinute: f.Status.MessagesPerMinute, Consumers: f.Status.Consumers,
	})
	r.problems("feed/"+f.Name, f.Namespace, f.Generation, f.Status.ObservedGeneration, f.Status.Conditions, feedConditions)
}

func (r *Report) addConsumer(c *v1alpha1.FeedConsumer) {
	line := Consumer{
		Namespace: c.Namespace, Name: c.Name, Feed: c.Spec.FeedRef.Name, Delivery: c.Spec.Delivery.Type, State: c.Status.State, Gaps: c.Status.Gaps,
		Ready: condition(c.Status.Conditions, v1alpha1.ConditionReady).Status,
	}
	if lag := c.Status.Lag; lag != nil {
		line.LagMessages, line.LagSeconds = lag.Messages, lag.Seconds
	}
	for _, d := range c.Status.Dropped {
		line.Dropped += d.Count
	}
	r.Consumers = append(r.Consumers, line)
	r.problems("feedconsumer/"+c.Name, c.Namespace, c.Generation, c.Status.ObservedGeneration, c.Status.Conditions, feedConditions)
}

func (r Report) printFeeds(w io.Writer) {
	if len(r.Feeds) == 0 {
		return
	}
	fmt.Fprintln(w, "FEED\tSITE\tREADY\tINSTRUMENTS\tMESSAGES/MIN\tCONSUMERS")
	for _, f := range r.Feeds {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\n", r.name(f.Namespace, f.Name), f.Site, word(f.Ready, "yes", "NO"), f.Instruments, f.MessagesPerMinute, f.Consumers)
	}
}

func (r Report) printConsumers(w io.Writer) {
	if len(r.Consumers) == 0 {
		return
	}
	fmt.Fprintln(w, "CONSUMER\tFEED\tDELIVERY\tREADY\tSTATE\tLAG\tDROPPED\tGAPS")
	for _, c := range r.Consumers {
		lag := "-"
		if slices.Contains([]v1alpha1.ConsumerState{v1alpha1.ConsumerFlowing, v1alpha1.ConsumerSlow, v1alpha1.ConsumerLapped}, c.State) {
			lag = fmt.Sprintf("%d messages, %d s", c.LagMessages, c.LagSeconds)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\n", r.name(c.Namespace, c.Name), c.Feed, c.Delivery, word(c.Ready, "yes", "NO"), dash(string(c.State)), lag, c.Dropped, c.Gaps)
	}
}
