// SPDX-License-Identifier: Apache-2.0

// Package credentials lists the NATS credentials that the operator has issued, and has them replaced.
package credentials

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// Command returns `substorm credentials`.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use:   "credentials",
		Short: "List the NATS credentials of gateways, feed servers and consumers, and replace them",
		Long: `The operator issues NATS credentials that are valid for 30 days, and renews them for the same
user after ten. These commands list them, and have the operator replace a user by a new one.`,
	}
	c.AddCommand(listCommand(), rotateCommand())
	return c
}

// Entry is one user that the operator issued credentials for.
type Entry struct {
	Kind           string     `json:"kind"`
	Name           string     `json:"name"`
	User           string     `json:"user"`
	ExpirationTime *time.Time `json:"expirationTime,omitempty"`
	RenewalTime    *time.Time `json:"renewalTime,omitempty"`
}

func listCommand() *cobra.Command {
	var flags kube.Flags
	var format output.Format
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List NATS users, until when their credentials are valid, and when they are renewed",
		Example: `  substorm credentials ls -n substorm
  substorm credentials ls -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, err := kube.Open(flags)
			if err != nil {
				return err
			}
			all, err := list(cmd.Context(), cluster)
			if err != nil {
				return err
			}
			return output.Each(cmd.OutOrStdout(), format, all, func(w io.Writer) { table(w, all) })
		},
	}
	flags.Add(cmd.Flags())
	format.Add(cmd, "one user per line")
	return cmd
}

func list(ctx context.Context, cluster *kube.Cluster) ([]Entry, error) {
	var all []Entry
	for _, of := range []struct {
		kind string
		list client.ObjectList
	}{
		{kindGateway, &v1alpha1.IngestGatewayList{}}, {kindArchivist, &v1alpha1.SiteList{}}, {kindFeedServer, &v1alpha1.FeedServerList{}},
		{kindMirror, &v1alpha1.MirrorPartnerList{}}, {kindConsumer, &v1alpha1.FeedConsumerList{}},
	} {
		if err := cluster.List(ctx, of.list); err != nil {
			return nil, err
		}
		err := meta.EachListItem(of.list, func(o runtime.Object) error {
			t := target{of.kind, o.(client.Object).GetName(), o.(client.Object)}
			if c := t.status(); c != nil {
				e := Entry{Kind: t.kind, Name: t.name, User: c.User}
				if c.ExpirationTime != nil && c.RenewalTime != nil {
					e.ExpirationTime, e.RenewalTime = &c.ExpirationTime.Time, &c.RenewalTime.Time
				}
				all = append(all, e)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func table(w io.Writer, all []Entry) {
	tw := output.Columns(w, "KIND\tNAME\tEXPIRES\tRENEWS\tUSER")
	for _, e := range all {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", e.Kind, e.Name, moment(e.ExpirationTime), moment(e.RenewalTime), e.User)
	}
	_ = tw.Flush()
}

func moment(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}
