// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

const (
	// watchEvery is how often the versions from the watch are compared with those that were read.
	watchEvery = time.Second
	// watchPatience is how long a watch may take to begin before a warning is logged.
	watchPatience = 30 * time.Second
	// watchDoubt is how long a watch is not relied on after a failure: longer than client-go
	// waits between two tries, 30 s.
	watchDoubt = time.Minute
)

// secretWatch follows the metadata of all Secrets in the operator's namespaces, if an administrator has allowed it to list and watch
// Secrets. It requests metadata, and keeps names and versions alone, so that it brings no Secret's contents into the operator's memory; the
// right still allows reading them, which is why it is opt-in. It does not select by the label of Secrets with tokens: RBAC knows no labels,
// so that asking for less would need no smaller right, and FeedConsumers' Secrets have another one.
//
// It has a cache of its own. The manager's starts nothing until all that it follows is known, and without the right the Secrets never are.
type secretWatch struct {
	cache cache.Cache
	log   *slog.Logger
	// synced: the state at the beginning of the watch is known.
	synced atomic.Bool
	// failed is when the watch last failed, in nanoseconds since 1970.
	failed atomic.Int64
}

func newSecretWatch(mgr ctrl.Manager, names []string, log *slog.Logger) (*secretWatch, error) {
	w := &secretWatch{log: log}
	namespaces := map[string]cache.Config{}
	for _, name := range names {
		namespaces[name] = cache.Config{}
	}
	var err error
	w.cache, err = cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultNamespaces: namespaces, DefaultTransform: versionsOnly, DefaultWatchErrorHandler: w.fails,
	})
	if err != nil {
		return nil, fmt.Errorf("make a cache of Secrets' versions: %w", err)
	}
	return w, nil
}

// fails notes that the watch ended for another reason than that it always ends after some minutes.
func (w *secretWatch) fails(_ context.Context, _ *toolscache.Reflector, err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	w.failed.Store(time.Now().UnixNano())
	w.log.Info("the watch of Secrets failed; retrying", "error", err)
}

// isReliable returns whether the watch can be relied on.
func (w *secretWatch) isReliable() bool {
	return w.synced.Load() && time.Since(time.Unix(0, w.failed.Load())) > watchDoubt
}

// start begins to watch, and returns true once all Secrets are known. Until then they are requested as if there were no watch, and
// permanently so if the operator lacks the right.
func (w *secretWatch) start(ctx context.Context) bool {
	go func() {
		if err := w.cache.Start(ctx); err != nil {
			w.log.Warn("cannot watch Secrets; reading them one by one", "error", err)
		}
	}()
	informer, err := w.cache.GetInformer(ctx, secretMetadata(), cache.BlockUntilSynced(false))
	if err != nil {
		w.log.Warn("cannot watch Secrets; reading them one by one", "error", err)
		return false
	}
	late := time.AfterFunc(watchPatience, func() {
		w.log.Warn("cannot watch Secrets; reading them one by one: allow the operator to list and watch secrets, or leave --watch-secrets out")
	})
	defer late.Stop()
	synced := toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
	w.synced.Store(synced)
	return synced
}

// version is a Secret's version as the watch has it.
func (w *secretWatch) version(ctx context.Context, key types.NamespacedName) (secretVersion, error) {
	secret := secretMetadata()
	err := w.cache.Get(ctx, key, secret)
	if isGone(err) {
		return secretVersion{}, nil
	}
	return secretVersion{secret.UID, secret.ResourceVersion}, err
}

// versionsOnly drops all of a Secret's metadata that is not needed to distinguish two versions.
func versionsOnly(o any) (any, error) {
	secret, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return o, nil
	}
	return &metav1.PartialObjectMetadata{TypeMeta: secret.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: secret.Namespace, Name: secret.Name, UID: secret.UID, ResourceVersion: secret.ResourceVersion}}, nil
}
