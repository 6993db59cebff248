// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/workload"
)

// clusterPatience is how long a completion (Tab) waits for the API server.
const clusterPatience = 2 * time.Second

var (
	nothing     = cobra.NoFileCompletions
	files       = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	folders     = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	days        = oneOf("today", "yesterday")
	sites       = names(func() client.ObjectList { return &v1alpha1.SiteList{} })
	instruments = names(func() client.ObjectList { return &v1alpha1.InstrumentList{} })
	mirrors     = names(func() client.ObjectList { return &v1alpha1.MirrorPartnerList{} })
)

// flagValues completes the values of flags, by their names: each means one thing in all
// commands. Commands complete what only they know.
var flagValues = map[string]cobra.CompletionFunc{
	"namespace": names(func() client.ObjectList { return &corev1.NamespaceList{} }), "context": contexts, "site": sites, "instrument": instruments,
	"day": days, "since": days, "until": days,
	"kubeconfig": files, "file": files, "checksums": files, "report": files, "token-file": files, "tls-ca": files, "tls-cert": files, "tls-key": files,
	"nats-credentials": files, "plot": files, "queue": folders, "watch": folders,
}

// arguments completes those of commands, by their paths.
var arguments = map[string][]cobra.CompletionFunc{
	"archive retract": {instruments}, "archive restore": {instruments}, "archive purge": {instruments},
	"credentials rotate": {oneOf("gateway", "archivist", "feed-server", "mirror", "consumer"), credentialOwners},
	"mirror run":         {mirrors},
	"spool abandon":      {names(func() client.ObjectList { return &corev1.PodList{} })},
	"import":             {files},
	"storm replay":       {files},
}

// complete adds completion to all commands.
func complete(c *cobra.Command) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		value := flagValues[f.Name]
		if strings.HasSuffix(f.Name, "-dir") {
			value = folders
		}
		if value != nil && f.Value.Type() != "bool" {
			_ = c.RegisterFlagCompletionFunc(f.Name, value) // the command's own stays
		}
	})
	if of, known := arguments[strings.TrimPrefix(c.CommandPath(), c.Root().CommandPath()+" ")]; known {
		c.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return append(of, slices.Repeat([]cobra.CompletionFunc{nothing}, len(args)+1)...)[len(args)](cmd, args, begun)
		}
	}
	for _, sub := range c.Commands() {
		complete(sub)
	}
}

func oneOf(values ...cobra.Completion) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// names completes names of what the cluster has in the namespace. It knows none if the API server does not answer in time, or refuses.
func names(list func() client.ObjectList) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) (found []cobra.Completion, _ cobra.ShellCompDirective) {
		flag := func(name string) string {
			if f := cmd.Flag(name); f != nil {
				return f.Value.String()
			}
			return ""
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), clusterPatience)
		defer cancel()
		answer := make(chan []cobra.Completion, 1)
		go func() { // the search for the server's kinds has no deadline of its own
			var listed []cobra.Completion
			cluster, err := kube.Open(kube.Flags{Kubeconfig: flag("kubeconfig"), Context: flag("context"), Namespace: flag("namespace")})
			all := list()
			if err == nil && flag("code") == "" && cluster.List(ctx, all) == nil {
				_ = meta.EachListItem(all, func(o runtime.Object) error {
					if pod, ok := o.(*corev1.Pod); !ok || pod.Labels[workload.LabelComponent] == "gateway" {
						listed = append(listed, o.(client.Object).GetName())
					}
					return nil
				})
			}
			answer <- listed
		}()
		select {
		case found = <-answer:
		case <-ctx.Done():
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// credentialOwners completes whose credentials are replaced, by what they are.
func credentialOwners(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	switch args[0] {
	case "gateway":
		return names(func() client.ObjectList { return &v1alpha1.IngestGatewayList{} })(cmd, args, begun)
	case "feed-server":
		return names(func() client.ObjectList { return &v1alpha1.FeedServerList{} })(cmd, args, begun)
	case "mirror":
		return mirrors(cmd, args, begun)
	case "consumer":
		return names(func() client.ObjectList { return &v1alpha1.FeedConsumerList{} })(cmd, args, begun)
	default:
		return sites(cmd, args, begun)
	}
}

// contexts completes contexts of the kubeconfig.
func contexts(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	config, err := kube.Flags{Kubeconfig: cmd.Flag("kubeconfig").Value.String()}.Rules().Load()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
}
