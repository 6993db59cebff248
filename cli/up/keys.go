// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/cli/quickstart"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// keysPrefix begins the names of the Secrets with the keys of the embedded servers.
const keysPrefix = "standalone"

// makeKeys makes the keys of the embedded NATS server if there are none, and returns the part of its configuration that names its
// accounts. They are Secrets like those of the quickstart's servers, and lie with all others in the data folder.
func makeKeys(ctx context.Context, config *rest.Config, namespace string, log *slog.Logger) ([]byte, error) {
	cluster, err := kube.New(config, namespace)
	if err != nil {
		return nil, err
	}
	quiet := slog.New(slog.DiscardHandler) // a line for each Secret
	if err := quickstart.Keys(ctx, quiet, quickstart.Cluster{Cluster: cluster},
		quickstart.Config{Namespace: namespace, Prefix: keysPrefix, ClusterDomain: "cluster.local", Instance: keysPrefix}); err != nil {
		return nil, err
	}
	auth, err := cluster.Secret(ctx, keysPrefix+"-nats-auth")
	if err != nil {
		return nil, err
	}
	log.Debug("the keys of the embedded servers are there", "namespace", namespace)
	return auth.Data["auth.conf"], nil
}

// keysStand errs where one of these Secrets could not be read from the API's log: with new keys in its place, what the streams hold is not found.
func (s *site) keysStand() error {
	for _, lost := range s.lost {
		if strings.HasPrefix(lost, "secrets "+s.namespace+"/"+keysPrefix+"-") {
			return fmt.Errorf("%s: it has keys of the embedded NATS server, so restore the folder %s from a backup, or start the version that wrote it", lost, s.folder.in("api"))
		}
	}
	return nil
}

// archiveBucket is the bucket of the embedded object store.
const archiveBucket = "archive"

// embedded are the servers of this process, as a Site names them.
func embedded(objects string) (v1alpha1.ObjectStore, v1alpha1.JetStream) {
	store := v1alpha1.ObjectStore{
		Endpoint: objectstore.FolderEndpoint(objects), Bucket: archiveBucket, Region: "us-east-1",
		CredentialsSecretRef: v1alpha1.LocalReference{Name: keysPrefix + "-s3"},
	}
	ref := func(account string) *v1alpha1.LocalReference {
		return &v1alpha1.LocalReference{Name: keysPrefix + "-nats-" + account}
	}
	return store, v1alpha1.JetStream{
		Servers: []string{stream.EmbeddedURL}, Durability: v1alpha1.DurabilitySynced, Replicas: 1,
		AccountKeySecretRef: ref("account"), ConsumerAccountKeySecretRef: ref("consumers"),
		CommandAccountKeySecretRef: ref("commands"), LeafAccountKeySecretRef: ref("leaves"),
	}
}
