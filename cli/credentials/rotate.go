// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// The kinds of users, as the commands name them.
const (
	kindGateway    = "gateway"
	kindArchivist  = "archivist"
	kindFeedServer = "feed-server"
	kindConsumer   = "consumer"
	kindMirror     = "mirror"
)

// lookEvery is how often the status is read while the operator has not answered.
const lookEvery = 500 * time.Millisecond

func rotateCommand() *cobra.Command {
	var flags kube.Flags
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "rotate gateway|archivist|feed-server|mirror|consumer NAME",
		Short: "Replace the NATS credentials of a pool, of a FeedServer, of a Site's archivist, of a MirrorPartner, or of a FeedConsumer",
		Long: `Has the operator issue credentials of a new user, and waits until it has. NAME is that of an
IngestGateway, of a Site (for its archivist), of a FeedServer, of a MirrorPartner, or of a FeedConsumer of delivery NATS.

Pods read the new credentials from their Secret within two minutes, and use them with their next connection; nothing
restarts. The credentials from before are valid until they expire, or until their user is revoked at the NATS account:
the command prints how. Under substorm up there is no such command. A leaf's credentials are replaced by deleting the Secret <site>-leaf-<code>.`,
		Example: `  substorm credentials rotate gateway north
  substorm credentials rotate archivist demo
  substorm credentials rotate feed-server public
  substorm credentials rotate mirror university
  substorm credentials rotate consumer model
  substorm quickstart revoke UAB3…                 # then, once the programs have the new ones`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := newTarget(args[0], args[1])
			if err != nil {
				return err
			}
			cluster, err := kube.Open(flags)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			return target.rotate(ctx, cluster, cmd.OutOrStdout())
		},
	}
	flags.Add(cmd.Flags())
	cmd.Flags().DurationVar(&patience, "wait", 2*time.Minute, "how long to wait for the operator")
	return cmd
}

// target is what has credentials of the operator's.
type target struct {
	kind, name string
	object     client.Object
}

func newTarget(kind, name string) (*target, error) {
	object, known := map[string]client.Object{kindGateway: &v1alpha1.IngestGateway{}, kindArchivist: &v1alpha1.Site{}, kindFeedServer: &v1alpha1.FeedServer{},
		kindMirror: &v1alpha1.MirrorPartner{}, kindConsumer: &v1alpha1.FeedConsumer{}}[kind]
	if !known {
		return nil, usage.Errorf("%q has no NATS credentials: name gateway, archivist, feed-server, mirror or consumer", kind)
	}
	return &target{kind, name, object}, nil
}

// status is what the operator says of the credentials; nil where it issued none.
func (t *target) status() *v1alpha1.CredentialsStatus {
	switch o := t.object.(type) {
	case *v1alpha1.IngestGateway:
		return o.Status.Credentials
	case *v1alpha1.FeedServer:
		return o.Status.Credentials
	case *v1alpha1.MirrorPartner:
		return o.Status.Credentials
	case *v1alpha1.FeedConsumer:
		return o.Status.Credentials
	case *v1alpha1.Site:
		if s := o.Status.Archivist; s != nil {
			return s.Credentials
		}
	}
	return nil
}

func (t *target) rotate(ctx context.Context, cluster *kube.Cluster, out io.Writer) error {
	if err := t.read(ctx, cluster); err != nil {
		return err
	}
	before := t.status()
	if before == nil {
		return fmt.Errorf("%s %q has no NATS credentials that the operator issued: its Site has no jetStream.accountKeySecretRef, it is not ready yet "+
			"(see its conditions), or it is a FeedConsumer of another delivery than NATS, whose token is replaced by deleting its Secret", t.kind, t.name)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1alpha1.AnnotationRotateCredentials: before.User}}})
	if err != nil {
		return err
	}
	if err := cluster.Client.Patch(ctx, t.object, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("annotate %s %q: %w", t.kind, t.name, err)
	}
	err = wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (bool, error) {
		if err := t.read(ctx, cluster); err != nil {
			return false, err
		}
		after := t.status()
		return after != nil && after.User != before.User, nil
	})
	if err != nil {
		return fmt.Errorf("the operator has not replaced user %s of %s %q: %w; it will when it runs, "+
			"see the conditions of the resource: `kubectl describe`, or under substorm up `substorm get -o yaml`", before.User, t.kind, t.name, err)
	}
	fmt.Fprintf(out, "%s %s: user %s is replaced by %s\n", t.kind, t.name, before.User, t.status().User)
	fmt.Fprintf(out, "Programs take the new credentials with their next connection. ")
	if cluster.IsStandalone(ctx) {
		until := "they expire"
		if before.ExpirationTime != nil {
			until = before.ExpirationTime.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(out, "The old ones are valid until %s; under substorm up there is no command to revoke them.\n"+
			"They open the NATS server of substorm up alone, which has no port, but a socket in its data folder that only its user can open.\n",
			until)
		return nil
	}
	t.printRevocation(out, before.User)
	return nil
}

// printRevocation says how to end the credentials of a user at the NATS servers of a cluster.
func (t *target) printRevocation(out io.Writer, user string) {
	account := "SUBSTORM"
	if t.kind == kindConsumer {
		account = "CONSUMERS"
	}
	fmt.Fprintf(out, "To end the old ones now:\n")
	fmt.Fprintf(out, "  substorm quickstart revoke %s      # NATS of the quickstart\n", user)
	fmt.Fprintf(out, "  nsc revocations add-user --account %s --user-public-key %s && nsc push --account %s   # others\n", account, user, account)
}

func (t *target) read(ctx context.Context, cluster *kube.Cluster) error {
	if err := cluster.Client.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: t.name}, t.object); err != nil {
		return fmt.Errorf("%s %q in namespace %q: %w", t.kind, t.name, cluster.Namespace, err)
	}
	return nil
}
