// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

const (
	// lookEvery is how often it is looked whether all is ready.
	lookEvery = 100 * time.Millisecond
	// sayEvery is how often it is said what is waited for.
	sayEvery = 2 * time.Second
	// addressesWait is how long it is waited for the addresses of all Instruments, which are in their statuses soon after gateways are ready.
	addressesWait = 3 * time.Second
)

// reportReadiness says what the Site waits for until all of it is ready, and then where it receives and serves.
func (s *site) reportReadiness(ctx context.Context) {
	began, said := time.Now(), time.Now()
	for {
		lacks, err := s.listUnready(ctx)
		if err == nil && len(lacks) == 0 {
			break
		}
		if time.Since(said) >= sayEvery {
			said = time.Now()
			fmt.Fprintf(s.cfg.Stderr, "%3.0fs  waiting: %s\n", time.Since(began).Seconds(), strings.Join(lacks, "; "))
			s.manager.waiting(lacks)
		}
		select {
		case err := <-s.failed:
			s.failed <- err
			return
		default:
		}
		if !retry.Sleep(ctx, lookEvery) {
			return
		}
	}
	message := fmt.Sprintf("Site %q is ready after %.1fs; its data is in %s", s.code, time.Since(began).Seconds(), s.folder.path)
	s.manager.ready(message)
	fmt.Fprintln(s.cfg.Stderr, message)
	s.tellAddresses(ctx)
}

// listUnready says what of the Site's resources is not ready, and why. A resource that is not accepted does not get ready by waiting: it is
// listed with all else that is not accepted, unless it is the Site.
func (s *site) listUnready(ctx context.Context) (lacks []string, err error) {
	look := func(kind, name string, conditions []metav1.Condition) {
		if kind != "Site" && meta.IsStatusConditionFalse(conditions, v1alpha1.ConditionAccepted) {
			return
		}
		if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); c == nil {
			lacks = append(lacks, fmt.Sprintf("%s %q", kind, name))
		} else if c.Status != metav1.ConditionTrue {
			lacks = append(lacks, fmt.Sprintf("%s %q: %s", kind, name, c.Message))
		}
	}
	var sites v1alpha1.SiteList
	var gateways v1alpha1.IngestGatewayList
	var servers v1alpha1.FeedServerList
	for _, list := range []client.ObjectList{&sites, &gateways, &servers} {
		if err := s.client.List(ctx, list); err != nil {
			return nil, err
		}
	}
	for i := range sites.Items {
		look("Site", sites.Items[i].Name, sites.Items[i].Status.Conditions)
	}
	for i := range gateways.Items {
		look("IngestGateway", gateways.Items[i].Name, gateways.Items[i].Status.Conditions)
	}
	for i := range servers.Items {
		look("FeedServer", servers.Items[i].Name, servers.Items[i].Status.Conditions)
	}
	return append(lacks, s.pods.Lacks()...), nil
}

// tellAddresses says where data is served and received.
func (s *site) tellAddresses(ctx context.Context) {
	var servers v1alpha1.FeedServerList
	var instruments v1alpha1.InstrumentList
	var gateways v1alpha1.IngestGatewayList
	for began := time.Now(); ; {
		for _, list := range []client.ObjectList{&servers, &instruments, &gateways} {
			if err := s.client.List(ctx, list); err != nil {
				return
			}
		}
		if !slices.ContainsFunc(instruments.Items, lacksAddress) || time.Since(began) >= addressesWait || !retry.Sleep(ctx, lookEvery) {
			break
		}
	}
	out := s.cfg.Stderr
	for i := range servers.Items {
		if url := servers.Items[i].Status.URL; url != "" { // else it is not accepted
			fmt.Fprintf(out, "  serves       %s\n", url)
		}
	}
	for i := range instruments.Items {
		for _, l := range instruments.Items[i].Status.Listeners {
			tellListener(out, instruments.Items[i].Name, l)
		}
	}
	s.tellNotAccepted(ctx)
	s.tellConsumers(ctx)
	for _, lost := range s.lost {
		fmt.Fprintf(out, "  unread       %s\n", lost)
	}
	for i := range gateways.Items {
		if q := gateways.Items[i].Spec.Quarantine; q != nil && len(instruments.Items) == 0 {
			fmt.Fprintf(out, "  quarantines  what arrives at ports %s: `substorm adopt --help` says how an Instrument gets it\n", strings.Trim(fmt.Sprint(q.Ports), "[]"))
		}
	}
	fmt.Fprintf(out, "  look         KUBECONFIG=%s substorm status\n", s.kubeconfig)
}

// tellConsumers says how FeedConsumers are followed.
func (s *site) tellConsumers(ctx context.Context) {
	var consumers v1alpha1.FeedConsumerList
	if err := s.client.List(ctx, &consumers); err != nil {
		return
	}
	for i := range consumers.Items {
		c := &consumers.Items[i]
		if c.Spec.Delivery.Type == v1alpha1.DeliveryServerSentEvents && c.Status.URL != "" {
			fmt.Fprintf(s.cfg.Stderr, "  follow       curl -N '%s'\n", c.Status.URL)
		}
	}
}

// lacksAddress says whether a listener of an Instrument has neither an address nor a reason why it has none.
func lacksAddress(i v1alpha1.Instrument) bool {
	if meta.IsStatusConditionFalse(i.Status.Conditions, v1alpha1.ConditionAccepted) {
		return false
	}
	return len(i.Status.Listeners) < len(i.Spec.Listeners) || slices.ContainsFunc(i.Status.Listeners, func(l v1alpha1.ListenerStatus) bool {
		return len(l.Addresses) == 0 && !meta.IsStatusConditionFalse(l.Conditions, v1alpha1.ConditionProgrammed)
	})
}

// tellListener says where a listener of an Instrument receives, or why it does not: another program may have its port.
func tellListener(out io.Writer, instrument string, l v1alpha1.ListenerStatus) {
	label, why := "receives", ""
	if c := meta.FindStatusCondition(l.Conditions, v1alpha1.ConditionProgrammed); c != nil && c.Status == metav1.ConditionFalse {
		label, why = "not open", ": "+c.Message
	}
	for _, a := range l.Addresses {
		fmt.Fprintf(out, "  %-12s %s of %s%s\n", label, cmp.Or(a.Address, a.URL), instrument, why)
	}
}
