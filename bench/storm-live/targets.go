// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/retry"
)

// lookEvery is how old the word about which pods are ready may be.
const lookEvery = 500 * time.Millisecond

// pods are those behind a Service that are ready, as a proxy in front of them knows them: it picks one for each request. The machine
// reaches the pods of the bare cluster directly. Through kube-proxy thousands of connections a second would use up its ports for one pod.
type pods struct {
	Kubeconfig, Service string
	Port                int
}

// targets are the addresses of pods.
type targets struct {
	pods
	client    client.Client
	addresses atomic.Pointer[[]string]
}

// follow knows pods until ctx ends.
func (p pods) follow(ctx context.Context) (*targets, error) {
	c, err := connect(p.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return p.followBy(ctx, c)
}

func (p pods) followBy(ctx context.Context, c client.Client) (*targets, error) {
	t := &targets{pods: p, client: c}
	if err := t.look(ctx); err != nil {
		return nil, err
	}
	go func() {
		for retry.Sleep(ctx, lookEvery) {
			if err := t.look(ctx); err != nil && ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "which pods are behind the Service %s: %v\n", p.Service, err)
			}
		}
	}()
	return t, nil
}

func (t *targets) look(ctx context.Context) error {
	var slices discoveryv1.EndpointSliceList
	if err := t.client.List(ctx, &slices, client.InNamespace(namespace), client.MatchingLabels{discoveryv1.LabelServiceName: t.Service}); err != nil {
		return err
	}
	var found []string
	for _, s := range slices.Items {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				found = append(found, net.JoinHostPort(e.Addresses[0], strconv.Itoa(t.Port)))
			}
		}
	}
	t.addresses.Store(&found)
	return nil
}

var errNoPod = errors.New("no pod is ready")

// pick returns the address of one.
func (t *targets) pick() (string, error) {
	all := *t.addresses.Load()
	if len(all) == 0 {
		return "", errNoPod
	}
	return all[rand.IntN(len(all))], nil
}
