// SPDX-License-Identifier: Apache-2.0

// Package credentials lists the NATS credentials that the operator has issued, and has them replaced.
package credentials

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

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
	Kind      string     `json:"kind"`
	Name      string     `json:"name"`
	User      string     `json:"user"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	RenewsAt  *time.Time `json:"renewsAt,omitempty"`
}

func listCommand() *cobra.Command {
	var flags kube.Flags
	var format string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List NATS users, until when their credentials are valid, and when they are renewed",
		Example: `  substorm credentials ls -n substorm
  substorm credentials ls -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.Check(format); err != nil {
				return err
			}
			cluster, err := kube.Open(flags)
			if err != nil {
				return err
			}
			all, err := list(cmd.Context(), cluster)
			if err != nil {
				return err
			}
			if format == output.JSON {
				return output.Lines(cmd.OutOrStdout(), all)
			}
			return table(cmd.OutOrStdout(), all)
		},
	}
	flags.Add(cmd.Flags())
	cmd.Flags().StringVarP(&format, "output", "o", "", "json")
	return cmd
}

func list(ctx context.Context, cluster *kube.Cluster) ([]Entry, error) {
	var gateways v1alpha1.IngestGatewayList
	var sites v1alpha1.SiteList
	var consumers v1alpha1.FeedConsumerList
	if err := cluster.List(ctx, &gateways); err != nil {
		return nil, err
	}
	if err := cluster.List(ctx, &sites); err != nil {
		return nil, err
	}
	if err := cluster.List(ctx, &consumers); err != nil {
		return nil, err
	}
	var all []Entry
	add := func(kind, name string, c *v1alpha1.CredentialsStatus) {
		if c == nil {
			return
		}
		e := Entry{Kind: kind, Name: name, User: c.User}
		if c.ExpiresAt != nil && c.RenewsAt != nil {
			e.ExpiresAt, e.RenewsAt = &c.ExpiresAt.Time, &c.RenewsAt.Time
		}
		all = append(all, e)
	}
	for i := range gateways.Items {
		add(kindGateway, gateways.Items[i].Name, gateways.Items[i].Status.Credentials)
	}
	for i := range sites.Items {
		if a := sites.Items[i].Status.Archivist; a != nil {
			add(kindArchivist, sites.Items[i].Name, a.Credentials)
		}
		if s := sites.Items[i].Status.FeedServer; s != nil {
			add(kindFeedServer, sites.Items[i].Name, s.Credentials)
		}
	}
	for i := range consumers.Items {
		add(kindConsumer, consumers.Items[i].Name, consumers.Items[i].Status.Credentials)
	}
	return all, nil
}

func table(w io.Writer, all []Entry) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, "KIND\tNAME\tEXPIRES\tRENEWS\tUSER")
	for _, e := range all {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", e.Kind, e.Name, moment(e.ExpiresAt), moment(e.RenewsAt), e.User)
	}
	return tw.Flush()
}

func moment(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}
