// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/internal/kvbucket"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan"
)

const (
	// tellLevelIn bounds the wait for JetStream to take a level.
	tellLevelIn = 5 * time.Second
	// tellLevelAgain is after how long a level that JetStream did not accept is sent again.
	tellLevelAgain = 10 * time.Second
)

// tellLevel keeps a Site's level on feed servers equal to the plan: the status that commands show is updated every ten minutes only. If the
// Site declared levels before (was) and does not any more, the stored level is removed. tellLevel returns after how long to try again, 0
// for never; once JetStream is connected, the Site is looked at again.
func (r *siteReconciler) tellLevel(ctx context.Context, site types.NamespacedName, code string, level *wire.SurgeLevel, declaredBefore bool) time.Duration {
	if !r.weathers.isUntold(site, level, declaredBefore) {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, tellLevelIn)
	defer cancel()
	switch err := r.links.putLevel(ctx, site, code, level); {
	case err == nil:
		r.weathers.tell(site, level)
		return 0
	case errors.Is(err, errNotConnected):
		return 0
	default:
		r.weathers.log.Warn("cannot update the level of space weather that feed servers show; retrying", "site", site.String(), "error", err)
		return tellLevelAgain
	}
}

// isUntold returns whether a level differs from the one that was last sent. Nil is sent if the Site declared levels before.
func (w *weathers) isUntold(site types.NamespacedName, level *wire.SurgeLevel, declaredBefore bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := w.told[site]
	if level == nil {
		return told != nil || declaredBefore
	}
	return !reflect.DeepEqual(told, level)
}

// tell notes the level that was sent.
func (w *weathers) tell(site types.NamespacedName, is *wire.SurgeLevel) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if is == nil {
		delete(w.told, site)
	} else {
		w.told[site] = is
	}
}

// putLevel writes the level that feed servers show; nil removes it.
func (l *links) putLevel(ctx context.Context, site types.NamespacedName, code string, is *wire.SurgeLevel) error {
	js := l.jetStream(site)
	if js == nil {
		return errNotConnected
	}
	if is == nil {
		return kvbucket.Forget(ctx, js, wire.StatusBucket(code), wire.SurgeStatusKey)
	}
	data, err := wire.Encode(is)
	if err != nil {
		return err
	}
	_, err = js.Publish(ctx, "$KV."+wire.StatusBucket(code)+"."+wire.SurgeStatusKey, data)
	return err
}

// jetStream of a Site; nil while it is not connected.
func (l *links) jetStream(site types.NamespacedName) jetstream.JetStream {
	link := l.linked(site)
	if link == nil {
		return nil
	}
	link.mu.Lock()
	defer link.mu.Unlock()
	return link.js
}

// levelChanged publishes that the level of a Site is another than before.
func (a *announcer) levelChanged(p planned) {
	before, after := surgeStatuses(p)
	change := plan.SurgeChange(p.code, before, after, p.level, time.Now())
	if change == nil {
		return
	}
	m, err := levelMessage(string(p.object.GetUID()), change)
	if err == nil {
		err = a.publishStored(p.site, m)
	}
	if err != nil {
		a.notPublished("the change of a level", p, err)
	}
}

// levelMessage is the message to publish. It has the same id however often the change is published.
func levelMessage(uid string, change *wire.SurgeLevel) (*nats.Msg, error) {
	data, err := wire.Encode(change)
	if err != nil {
		return nil, err
	}
	m := nats.NewMsg(wire.SurgeSubject(change.Site))
	m.Data = data
	id := fmt.Sprintf("%s/surge/%d/%s", uid, change.Since.Unix(), change.Level)
	describe(m, id, wire.TypeSurge, change.Site, change.Level, *change.Since)
	return m, nil
}

// publishStored publishes into a stream. That the stream did not take it is counted when it is known: who announces does not wait.
func (a *announcer) publishStored(site types.NamespacedName, m *nats.Msg) error {
	js := a.links.jetStream(site)
	if js == nil {
		return errNotConnected
	}
	ack, err := js.PublishMsgAsync(m)
	if err != nil {
		return err
	}
	go func() {
		timer := time.NewTimer(tellLevelIn)
		defer timer.Stop()
		err := errors.New("the stream did not answer")
		select {
		case <-ack.Ok():
			return
		case err = <-ack.Err():
		case <-timer.C:
		}
		a.unpublished.Inc()
		a.log.Warn("the change of a level could not be published", "site", site.String(), "error", err)
	}()
	return nil
}
