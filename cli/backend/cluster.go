// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
)

// fromCluster reads the Site and the Secrets that it names.
func fromCluster(ctx context.Context, o Options) (*Backend, error) {
	cluster, err := kube.Open(o.Flags)
	if err != nil {
		return nil, fmt.Errorf("%w; or ask no cluster, and give --code, --s3-endpoint and --s3-bucket", err)
	}
	site, err := cluster.Site(ctx, o.Site)
	if err != nil {
		return nil, err
	}
	b := &Backend{Code: site.Spec.Code, cluster: cluster, serverName: o.TLSServerName}
	secrets, err := readSecrets(ctx, cluster, site)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(b.objectStore(site, secrets), b.jetStream(site, secrets, o.ImportFor)); err != nil {
		return nil, fmt.Errorf("Site %s/%s: %w", site.Namespace, site.Name, err)
	}
	return b, b.override(o)
}

func readSecrets(ctx context.Context, cluster *kube.Cluster, site *v1alpha1.Site) (plan.Secrets, error) {
	secrets := plan.Secrets{}
	needs := append(plan.ObjectStoreSecrets(site), plan.JetStreamSecrets(site)...)
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

func (b *Backend) objectStore(site *v1alpha1.Site, secrets plan.Secrets) (err error) {
	spec := site.Spec.ObjectStore
	credentials := secrets[spec.CredentialsSecretRef.Name].Data
	b.store.Endpoint, b.store.Bucket, b.store.Region = spec.Endpoint, spec.Bucket, spec.Region
	b.store.AccessKeyID, b.store.SecretAccessKey = string(credentials[plan.KeyAccessKeyID]), string(credentials[plan.KeySecretAccessKey])
	b.store.TLS, err = tlsOf(spec.TLS, secrets)
	return err
}

func (b *Backend) jetStream(site *v1alpha1.Site, secrets plan.Secrets, importFor string) (err error) {
	spec := site.Spec.JetStream
	b.nats.Servers = spec.Servers
	if ref := spec.CredentialsSecretRef; ref != nil {
		b.nats.Credentials = secrets[ref.Name].Data[plan.KeyUserCreds]
	}
	if ref := spec.AccountKeySecretRef; ref != nil {
		user, age := reader(site.Spec.Code), userAge
		if importFor != "" {
			user, age = importer(site.Spec.Code, importFor), importerAge
		}
		b.nats.InboxPrefix = user.InboxPrefix
		if b.nats.Credentials, err = issue(user, secrets[ref.Name], age); err != nil {
			return err
		}
	}
	b.nats.TLS, err = tlsOf(spec.TLS, secrets)
	return err
}

func tlsOf(ref *v1alpha1.TLS, secrets plan.Secrets) (*tls.Config, error) {
	if ref == nil {
		return nil, nil
	}
	var secret *corev1.Secret = secrets[ref.SecretRef.Name]
	return tlsFrom("Secret "+secret.Name, secret.Data)
}
