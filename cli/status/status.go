// SPDX-License-Identifier: Apache-2.0

// Package status answers what someone on duty asks at night, in the order in
// which they ask it: is the Site ready, do the gateways receive, do the
// instruments send, what is wrong and what is to be done.
package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// ErrProblems: not all is as it should be.
var ErrProblems = errors.New("not all is as it should be")

// Command returns `substorm status`.
func Command() *cobra.Command {
	var flags kube.Flags
	var site, format string
	var everywhere bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how a Site, its gateways, instruments, feeds and consumers are",
		Long: `Says how the Sites of a namespace are: the backends, the gateways, the instruments,
the feeds and their consumers, and at the end every condition of theirs that is not as
it should be, with what to do about it.

Exit codes: 0 all is well; 3 something is not, or there is no Site; 1 the API server
could not be asked; 2 the command line makes no sense. -o json has "fine" beside that.`,
		Example: `  kubectl substorm status -n substorm
  substorm status --site demo
  substorm status -A -o json | jq -e .fine`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.Check(format); err != nil {
				return err
			}
			cluster, err := kube.Open(flags)
			if err != nil {
				return err
			}
			if everywhere {
				cluster.Namespace = ""
			}
			report, err := Read(cmd.Context(), cluster, site, time.Now())
			if err != nil {
				return err
			}
			write := report.print
			if format == output.JSON {
				write = report.json
			}
			if err := write(cmd.OutOrStdout()); err != nil {
				return err
			}
			return report.verdict()
		},
	}
	flags.Add(cmd.Flags())
	cmd.Flags().StringVar(&site, "site", "", "only this Site")
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "the Sites of all namespaces")
	cmd.Flags().StringVarP(&format, "output", "o", "", "json")
	return cmd
}

// Read asks the API server.
func Read(ctx context.Context, cluster *kube.Cluster, site string, now time.Time) (Report, error) {
	var sites v1alpha1.SiteList
	var gateways v1alpha1.IngestGatewayList
	var instruments v1alpha1.InstrumentList
	var feeds v1alpha1.FeedList
	var consumers v1alpha1.FeedConsumerList
	for _, list := range []client.ObjectList{&sites, &gateways, &instruments, &feeds, &consumers} {
		if err := cluster.List(ctx, list); err != nil {
			return Report{}, err
		}
	}
	if site != "" {
		sites.Items = slices.DeleteFunc(sites.Items, func(s v1alpha1.Site) bool { return s.Name != site })
		elsewhere := func(ref v1alpha1.LocalReference) bool { return ref.Name != site }
		gateways.Items = slices.DeleteFunc(gateways.Items, func(g v1alpha1.IngestGateway) bool { return elsewhere(g.Spec.SiteRef) })
		instruments.Items = slices.DeleteFunc(instruments.Items, func(i v1alpha1.Instrument) bool { return elsewhere(i.Spec.SiteRef) })
		feeds.Items = slices.DeleteFunc(feeds.Items, func(f v1alpha1.Feed) bool { return elsewhere(f.Spec.SiteRef) })
		consumers.Items = slices.DeleteFunc(consumers.Items, func(c v1alpha1.FeedConsumer) bool {
			return !slices.ContainsFunc(feeds.Items, func(f v1alpha1.Feed) bool { return f.Namespace == c.Namespace && f.Name == c.Spec.FeedRef.Name })
		})
	}
	if len(sites.Items) == 0 && site != "" {
		return Report{}, fmt.Errorf("no Site %q in namespace %q: kubectl get site -A lists them, -n chooses the namespace", site, cluster.Namespace)
	}
	return Summarize(Resources{sites.Items, gateways.Items, instruments.Items, feeds.Items, consumers.Items}, cluster.Namespace, now), nil
}

// condition returns a condition, and one that says so where nobody has set it.
func condition(conditions []metav1.Condition, kind string) metav1.Condition {
	for _, c := range conditions {
		if c.Type == kind {
			return c
		}
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: "NotReported",
		Message: "nobody has said anything about it: does an operator run that watches this namespace? kubectl get pods -A -l app.kubernetes.io/part-of=substorm,app.kubernetes.io/component=operator"}
}
