// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/workload"
)

// fromCluster reads the Site and the Secrets that it names.
func fromCluster(ctx context.Context, o Options) (*Backend, error) {
	cluster, err := kube.Open(o.Flags)
	if err != nil {
		return nil, fmt.Errorf("%w; or use no cluster, and give --code, --s3-endpoint and --s3-bucket", err)
	}
	site, err := cluster.Site(ctx, o.Site)
	if err != nil {
		return nil, err
	}
	b := &Backend{Code: site.Spec.Code, cluster: cluster, serverName: o.TLSServerName}
	user := o.user(site.Spec.Code)
	secrets, err := readSecrets(ctx, cluster, site, append(workload.ObjectStoreSecrets(site), jetStreamSecrets(site, user)...))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(b.objectStore(site, secrets), b.jetStream(site, secrets, user)); err != nil {
		return nil, fmt.Errorf("Site %s/%s: %w", site.Namespace, site.Name, err)
	}
	return b, b.override(o)
}

// ReadJetStream finds the JetStream of a Site that was read from the cluster, for who only
// reads: it needs no Secret of the object store, and the Backend has none.
func ReadJetStream(ctx context.Context, cluster *kube.Cluster, site *v1alpha1.Site) (*Backend, error) {
	here := *cluster
	here.Namespace = site.Namespace
	site = site.DeepCopy()
	if err := here.Effective(ctx, site); err != nil {
		return nil, err
	}
	b, user := &Backend{Code: site.Spec.Code, cluster: &here}, reader(site.Spec.Code)
	secrets, err := readSecrets(ctx, &here, site, jetStreamSecrets(site, user))
	if err != nil {
		return nil, err
	}
	if err := b.jetStream(site, secrets, user); err != nil {
		return nil, fmt.Errorf("Site %s/%s: %w", site.Namespace, site.Name, err)
	}
	return b, nil
}

// jetStreamSecrets are what a user of JetStream needs.
func jetStreamSecrets(site *v1alpha1.Site, user CommandUser) []workload.SecretNeed {
	needs := workload.JetStreamSecrets(site)
	if user.OfCommands { // the key of the account with the streams is not for them
		needs = slices.DeleteFunc(needs, func(n workload.SecretNeed) bool { return slices.Contains(n.Keys, workload.KeyAccountSeed) })
		needs = append(needs, workload.CommandAccountSecrets(site)...)
	}
	return needs
}

func readSecrets(ctx context.Context, cluster *kube.Cluster, site *v1alpha1.Site, needs []workload.SecretNeed) (workload.Secrets, error) {
	secrets := workload.Secrets{}
	for _, need := range needs {
		secret, err := cluster.Secret(ctx, need.Name)
		if err != nil {
			return nil, fmt.Errorf("Site %s/%s, %s: %w", site.Namespace, site.Name, need.Field, err)
		}
		secrets[need.Name] = secret
	}
	if finding, missing := secrets.Missing(needs); missing {
		return nil, fmt.Errorf("Site %s/%s: %s", site.Namespace, site.Name, finding.Message)
	}
	return secrets, nil
}

func (b *Backend) objectStore(site *v1alpha1.Site, secrets workload.Secrets) (err error) {
	spec := site.Spec.ObjectStore
	credentials := secrets[spec.CredentialsSecretRef.Name].Data
	b.store.Endpoint, b.store.Bucket, b.store.Region = spec.Endpoint, spec.Bucket, spec.Region
	b.store.AccessKeyID, b.store.SecretAccessKey = string(credentials[workload.KeyAccessKeyID]), string(credentials[workload.KeySecretAccessKey])
	b.store.TLS, err = tlsOf(spec.TLS, secrets)
	return err
}

func (b *Backend) jetStream(site *v1alpha1.Site, secrets workload.Secrets, user CommandUser) (err error) {
	spec := site.Spec.JetStream
	b.nats.Servers = spec.Servers
	if b.nats.TLS, err = tlsOf(spec.TLS, secrets); err != nil {
		return err
	}
	if ref := spec.CredentialsSecretRef; ref != nil {
		b.nats.Credentials = secrets[ref.Name].Data[workload.KeyUserCreds]
	}
	if ref := spec.AccountKeySecretRef; ref != nil {
		if user.OfCommands {
			ref, b.natsAPI = spec.CommandAccountKeySecretRef, wire.CommandAPI
		}
		if ref == nil { // commands that read only the object store still work
			b.natsProblem = fmt.Errorf("Site %s/%s names no account of commands: set spec.jetStream.commandAccountKeySecretRef (docs/how-to/nats-accounts.md says how to make the account)",
				site.Namespace, site.Name)
			return nil
		}
		b.nats.InboxPrefix = user.User.InboxPrefix
		b.nats.Credentials, err = issue(user.User, secrets[ref.Name], user.age)
	}
	return err
}

// DeleteVolumeClaim deletes a PersistentVolumeClaim in the Site's namespace; one
// that does not exist is no error.
func (b *Backend) DeleteVolumeClaim(ctx context.Context, name string) error {
	if b.cluster == nil {
		return errors.New("no cluster is in use: name a Site with --site")
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: b.cluster.Namespace, Name: name}}
	if err := b.cluster.Client.Delete(ctx, claim); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete PersistentVolumeClaim %s/%s: %w", b.cluster.Namespace, name, err)
	}
	return nil
}

func tlsOf(refs *v1alpha1.TLS, secrets workload.Secrets) (*tls.Config, error) {
	if refs == nil {
		return nil, nil
	}
	data, whence := map[string][]byte{}, []string(nil)
	for _, need := range workload.TLSSecrets("tls", refs) {
		for _, key := range need.Keys {
			data[key] = secrets[need.Name].Data[key]
		}
		whence = append(whence, need.Field+" (Secret "+need.Name+")")
	}
	return tlsFrom(strings.Join(whence, ", "), data)
}
