// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
)

// health says whether the pod should get connections.
//
// It becomes ready once it listens for its instruments and has reached the object
// store and JetStream. It stays ready while those are away later: all pods share
// them, so taking every pod out of the Service would only turn a reset, which
// tells the sender to send again, into a refused connection.
type health struct {
	listening, store, jetStream, draining atomic.Bool
	storeError                            atomic.Pointer[string]
}

// ready answers /readyz. A missing API server or operator plays no part.
func (g *gateway) ready(context.Context) error {
	switch h := &g.health; {
	case h.draining.Load():
		return errors.New("draining: finishing what was begun")
	case g.registry.Current().Revision == 0:
		return errors.New("the registry of the Site was never seen complete: is the operator running, and does NATS answer?")
	case !h.listening.Load():
		return errors.New("opening the ports of the instruments")
	case !h.jetStream.Load():
		return fmt.Errorf("NATS was never reached (%v): see --nats-servers and the Site's status", g.nc.LastError())
	case !h.store.Load():
		if said := h.storeError.Load(); said != nil {
			return errors.New("the object store was never reached: " + *said)
		}
		return errors.New("the object store was never reached")
	default:
		return nil
	}
}

// seekBackends notes when the object store and JetStream were first reached.
func (g *gateway) seekBackends(ctx context.Context) error {
	if err := stream.WaitConnected(ctx, g.nc); err != nil {
		return err
	}
	g.health.jetStream.Store(true)
	reached := objectstore.Await(ctx, g.objects, func(err error) {
		text := err.Error()
		g.health.storeError.Store(&text)
		g.log.Warn("the object store does not answer: objects that must be in it get no receipt", "error", err)
	})
	if reached {
		g.health.store.Store(true)
	}
	return nil
}
