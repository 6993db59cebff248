// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/substorm/substorm/operator/plan/bus"
)

const (
	// stalledAfter is how long a leaf may be unheard before it is asked whether it answers. A consumer that sources sends a heartbeat each
	// second, and JetStream itself renews its request for one that it has not heard for ten seconds.
	stalledAfter = 20 * time.Second
	// answerTimeout is how long a leaf may take to answer, over a satellite too.
	answerTimeout = 5 * time.Second
)

// resume has JetStream ask the leaves of these unheard streams at once, if they answer. By itself it waits 30 seconds for the answer to a
// request that it sent while the link was down, whatever comes back meanwhile, and then up to two minutes longer, the more answers did not
// come.
func (c *copies) resume(ctx context.Context, unheard []bus.Stream) error {
	try, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	answer := make([]bool, len(unheard))
	var all sync.WaitGroup
	for i, s := range unheard { // all at once: one that does not answer delays no other
		all.Go(func() { answer[i] = c.answers(try, s.Sources[0]) })
	}
	all.Wait()
	for i, s := range unheard {
		if !answer[i] {
			continue
		}
		c.log.Debug("no messages from a reachable leaf; recreating the source", "stream", s.Name)
		if err := c.restartSource(try, s); err != nil {
			return fmt.Errorf("stream %s: %w", s.Name, err)
		}
	}
	return nil
}

func stalled(s *jetstream.StreamSourceInfo) bool { return s.Active < 0 || s.Active >= stalledAfter }

// restartSource removes a stream's source and adds it again: JetStream begins with it at once, behind the newest message that came from it. If the
// second half fails, the next try finds a stream that lacks a planned source.
func (c *copies) restartSource(ctx context.Context, s bus.Stream) error {
	is, err := c.js.Stream(ctx, s.Name)
	if err != nil {
		return err
	}
	with := is.CachedInfo().Config
	without := with
	without.Sources = nil
	if _, err := c.js.UpdateStream(ctx, without); err != nil {
		return err
	}
	_, err = c.js.UpdateStream(ctx, with)
	return err
}

// answers says whether the server of a leaf answers, when it is asked to delete a consumer that there is not: a hub may ask for that.
func (c *copies) answers(ctx context.Context, source bus.Source) bool {
	asking, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	inbox := bus.LeafAnswers(c.want.marker.Code) + "." + nuid.Next()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return false
	}
	defer func() { _ = sub.Unsubscribe() }() // errs when the connection is gone, and the subscription with it
	if err := c.nc.PublishRequest(source.DeleteConsumer("none"), inbox, nil); err != nil {
		return false
	}
	answer, err := sub.NextMsgWithContext(asking)
	return err == nil && answer.Header.Get("Status") == "" // with one, our own server says that there is no responder
}
