// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/kube"
)

// authSecret ends the name of the Secret with the servers' auth.conf.
const authSecret = "-nats-auth"

// natsPort is the port of the quickstart's Service for clients.
const natsPort = "4222"

func revokeCommand() *cobra.Command {
	var flags kube.Flags
	var prefix string
	cmd := &cobra.Command{
		Use:   "revoke USER...",
		Short: "Revoke NATS users of the quickstart, by their public keys",
		Long: `Has the quickstart's NATS servers refuse credentials that were issued for these users up to now, and end their
connections. It signs the accounts anew with the operator's key in the Secret <prefix>-nats-operator, writes them into
the Secret <prefix>-nats-auth for servers that start later, writes down who is revoked beside the operator's key, and tells the servers that run. It fails, and names the
server, where one of them does not answer that it has taken the account. It needs the rights to get both Secrets and
the StatefulSet <prefix>-nats, and to update both Secrets.

Replace credentials that are in use first (substorm credentials rotate): programs that have no others stop. What is
issued for the same user later is valid again.`,
		Example: `  substorm credentials rotate gateway north        # prints the user that it replaced
  substorm quickstart revoke UAB3…`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, users []string) error {
			cluster, err := kube.Open(flags)
			if err != nil {
				return err
			}
			return revoke(cmd.Context(), cluster, prefix, users, cmd.OutOrStdout())
		},
	}
	flags.Add(cmd.Flags())
	cmd.Flags().StringVar(&prefix, "prefix", "substorm", "what the names of Secrets and Services begin with")
	return cmd
}

func revoke(ctx context.Context, cluster *kube.Cluster, prefix string, users []string, out io.Writer) error {
	keys, auth, certificate := &corev1.Secret{}, &corev1.Secret{}, &corev1.Secret{}
	for name, into := range map[string]*corev1.Secret{prefix + "-nats-operator": keys, prefix + authSecret: auth, prefix + "-tls-client": certificate} {
		if err := cluster.Client.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: name}, into); err != nil {
			return fmt.Errorf("read secret %s: %w", name, err)
		}
	}
	servers, err := serversOf(ctx, cluster, prefix)
	if err != nil {
		return err
	}
	accounts, err := Revoke(keys.Data, auth.Data, users, time.Now())
	if err != nil {
		return fmt.Errorf("secrets %s and %s: %w", keys.Name, auth.Name, err)
	}
	if err := cluster.Client.Update(ctx, keys); err != nil {
		return fmt.Errorf("write secret %s: %w", keys.Name, err)
	}
	if err := cluster.Client.Update(ctx, auth); err != nil { // refused if it was changed meanwhile
		return fmt.Errorf("write secret %s: %w", auth.Name, err)
	}
	fmt.Fprintf(out, "secret %s: %d revoked\n", auth.Name, len(users))
	if err := tell(ctx, cluster, prefix, keys.Data, certificate.Data[keyCA], accounts, servers, out); err != nil {
		return fmt.Errorf("not all servers have the revocation: %w; a server without it still lets the user in: run this once more, or restart it two minutes from now: "+
			"kubectl -n %s rollout restart statefulset %s-nats", err, cluster.Namespace, prefix)
	}
	return nil
}

// serversOf is how many NATS servers the quickstart has.
func serversOf(ctx context.Context, cluster *kube.Cluster, prefix string) (int, error) {
	set := &unstructured.Unstructured{}
	set.SetAPIVersion("apps/v1")
	set.SetKind("StatefulSet")
	if err := cluster.Client.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: prefix + "-nats"}, set); err != nil {
		return 0, fmt.Errorf("read StatefulSet %s-nats, to know how many servers there are: %w", prefix, err)
	}
	replicas, _, err := unstructured.NestedInt64(set.Object, "spec", "replicas")
	return int(replicas), err
}

// tell connects to the servers as a user of the system account.
func tell(ctx context.Context, cluster *kube.Cluster, prefix string, operator map[string][]byte, ca []byte, accounts map[string]string, servers int, out io.Writer) error {
	host := prefix + "-nats." + cluster.Namespace + ".svc"
	address, end, err := cluster.Reachable(ctx, net.JoinHostPort(host, natsPort))
	if err != nil {
		return err
	}
	defer end()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return errors.New("the Secret with the client's certificate has no " + keyCA)
	}
	user, err := systemUser(operator)
	if err != nil {
		return err
	}
	nc, err := nats.Connect("tls://"+address, user, nats.Secure(&tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12}))
	if err != nil {
		return fmt.Errorf("connect to NATS at %s: %w", address, err)
	}
	defer nc.Close()
	return Announce(ctx, nc, accounts, servers, out)
}
