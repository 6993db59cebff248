// SPDX-License-Identifier: Apache-2.0

// Package status answers what someone on duty asks at night, in the order in
// which they ask it: is the Site ready, do the gateways receive, do the
// instruments send, what is wrong and what is to be done.
package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/internal/progress"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// ErrProblems: not all is as it should be.
var ErrProblems = errors.New("not all is as it should be")

// Command returns `substorm status`.
func Command() *cobra.Command {
	var flags kube.Flags
	var site string
	var format output.Format
	var everywhere, follow bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how a Site, its gateways, instruments, feeds, consumers and mirrors are",
		Long: `Says how the Sites of a namespace are: the backends, the gateways, the instruments,
the feeds, their consumers and the mirrors, and at the end every condition of theirs that is not as
it should be, with what to do about it.

What instruments sent is read from the Site's JetStream, where gateways report it every few
seconds: statuses have it up to ten minutes later. Where JetStream does not answer, or you may
not read the Secret of its account of commands, the figures are those of the statuses, and the
report says so.

It exits with 1 where something is not as it should be, where there is no Site, and where
the API server could not be asked; in -o json and yaml the field fine is false in the first case.

--watch goes on until it is interrupted, and says it again whenever something changes: on a
terminal in place, elsewhere below, with -o json as one document per line. While the API
server cannot be asked, it says so on standard error and goes on.`,
		Example: `  kubectl substorm status -n substorm
  substorm status --site demo --watch
  substorm status -A -o json | jq -e .fine`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, err := kube.Open(flags)
			if err != nil {
				return err
			}
			if everywhere {
				cluster.Namespace = ""
			}
			figures := newLive(cluster)
			defer figures.close()
			if follow {
				return watch(cmd.Context(), figures, site, cmd.OutOrStdout(), cmd.ErrOrStderr(), format)
			}
			report, err := read(cmd.Context(), figures, site, time.Now())
			if err != nil {
				return err
			}
			if err := output.One(cmd.OutOrStdout(), format, report, report.print); err != nil {
				return err
			}
			return report.verdict()
		},
	}
	flags.Add(cmd.Flags())
	cmd.Flags().StringVar(&site, "site", "", "only this Site")
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "the Sites of all namespaces")
	cmd.Flags().BoolVarP(&follow, "watch", "w", false, "go on, and print the report anew whenever it changes")
	format.Add(cmd, "one document")
	return cmd
}

// read asks the API server, and the Sites' JetStream for figures.
func read(ctx context.Context, figures *live, site string, now time.Time) (Report, error) {
	cluster := figures.cluster
	var sites v1alpha1.SiteList
	var gateways v1alpha1.IngestGatewayList
	var servers v1alpha1.FeedServerList
	var instruments v1alpha1.InstrumentList
	var feeds v1alpha1.FeedList
	var consumers v1alpha1.FeedConsumerList
	var mirrors v1alpha1.MirrorPartnerList
	for _, list := range []client.ObjectList{&sites, &gateways, &servers, &instruments, &feeds, &consumers} {
		if err := cluster.List(ctx, list); err != nil {
			return Report{}, err
		}
	}
	if err := cluster.List(ctx, &mirrors); err != nil && !meta.IsNoMatchError(err) { // an operator of an earlier version has no such kind
		return Report{}, err
	}
	if site != "" {
		sites.Items = slices.DeleteFunc(sites.Items, func(s v1alpha1.Site) bool { return s.Name != site })
		// The Site of an object that cannot be read may be unknown.
		elsewhere := func(ref v1alpha1.LocalReference) bool { return ref.Name != site && ref.Name != "" }
		gateways.Items = slices.DeleteFunc(gateways.Items, func(g v1alpha1.IngestGateway) bool { return elsewhere(g.Spec.SiteRef) })
		servers.Items = slices.DeleteFunc(servers.Items, func(s v1alpha1.FeedServer) bool { return elsewhere(s.Spec.SiteRef) })
		instruments.Items = slices.DeleteFunc(instruments.Items, func(i v1alpha1.Instrument) bool { return elsewhere(i.Spec.SiteRef) })
		feeds.Items = slices.DeleteFunc(feeds.Items, func(f v1alpha1.Feed) bool { return elsewhere(f.Spec.SiteRef) })
		mirrors.Items = slices.DeleteFunc(mirrors.Items, func(m v1alpha1.MirrorPartner) bool { return elsewhere(m.Spec.SiteRef) })
		consumers.Items = slices.DeleteFunc(consumers.Items, func(c v1alpha1.FeedConsumer) bool {
			return c.Spec.FeedRef.Name != "" && !slices.ContainsFunc(feeds.Items, func(f v1alpha1.Feed) bool { return f.Namespace == c.Namespace && f.Name == c.Spec.FeedRef.Name })
		})
	}
	if len(sites.Items) == 0 && site != "" {
		return Report{}, fmt.Errorf("no Site %q in namespace %q: substorm get site -A lists them, -n chooses the namespace", site, cluster.Namespace)
	}
	all := Resources{sites.Items, gateways.Items, servers.Items, instruments.Items, feeds.Items, consumers.Items, mirrors.Items}
	stale := figures.refresh(ctx, &all, now)
	report := Summarize(all, cluster.Namespace, now)
	report.saysStale(stale)
	return report, nil
}

// condition returns a condition, or one that says that it was never set.
func condition(conditions []metav1.Condition, kind string) metav1.Condition {
	for _, c := range conditions {
		if c.Type == kind {
			return c
		}
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: "NotReported",
		Message: "nobody has said anything about it: does an operator run that watches this namespace? kubectl get pods -A -l app.kubernetes.io/part-of=substorm,app.kubernetes.io/component=operator"}
}

const (
	// lookEvery is how often the API server is asked. If its answers take long, because there is much
	// to list, it is left alone for lookShare times as long.
	lookEvery = 2 * time.Second
	lookShare = 10
	// clearScreen empties a terminal.
	clearScreen = "\x1b[H\x1b[2J"
)

// watch prints the report, and again whenever it has changed, until ctx ends. On a terminal
// the table takes the place of the last one, elsewhere it follows it; of data each change is a
// document. Notes hear of an API server that does not answer.
func watch(ctx context.Context, figures *live, site string, out, notes io.Writer, format output.Format) error {
	documents, before := format.Encoder(out), ""
	for {
		began := time.Now()
		report, err := read(ctx, figures, site, began)
		took := time.Since(began)
		encoded, _ := json.Marshal(report) // which is made of what JSON has
		switch {
		case err != nil && before != "" && ctx.Err() == nil: // the API server may be back the next time
			before = err.Error()
			fmt.Fprintf(notes, "%s: the report is not up to date: %s\n", began.UTC().Format(time.RFC3339), before)
		case err != nil:
			return err
		case string(encoded) != before:
			before = string(encoded)
			if err := report.again(out, format, documents); err != nil {
				return err
			}
		}
		if !retry.Sleep(ctx, max(lookEvery, lookShare*took)) {
			return fmt.Errorf("interrupted: %w", ctx.Err())
		}
	}
}

func (r Report) again(out io.Writer, format output.Format, documents *output.Encoder) error {
	if format.IsData() {
		return documents.Encode(r)
	}
	return output.One(out, format, r, func(w io.Writer) {
		if progress.IsTerminal(out) {
			fmt.Fprint(w, clearScreen)
		}
		fmt.Fprintln(w, r.now.UTC().Format(time.RFC3339))
		r.print(w)
	})
}
