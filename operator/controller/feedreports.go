// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/observed"
)

type feedServerReport struct {
	observed.FeedServerReport
	alive bool
}

// takeFeedReport stores a feed server's report; false if it is not one.
func (r *reports) takeFeedReport(key string, value []byte, seen, now time.Time) bool {
	if pod, ok := wire.ParseFeedServerStatusKey(key); ok {
		if err := r.takeFeedServer(pod, value, seen, now); err != nil {
			r.log.Warn("a feed server's report cannot be read", "key", key, "error", err)
		}
		return true
	}
	consumer, pod, ok := wire.ParseConsumerStatusKey(key)
	if !ok {
		return false
	}
	status, err := wire.Decode[wire.ConsumerStatus](value)
	if err != nil {
		r.log.Warn("a feed server's report cannot be read", "key", key, "error", err)
		return true
	}
	next := observed.ConsumerReport{ConsumerStatus: status, Pod: pod, Seen: seen}
	r.mu.Lock()
	if r.consumers[consumer] == nil {
		r.consumers[consumer] = map[string]observed.ConsumerReport{}
	}
	was, known := r.consumers[consumer][pod]
	r.consumers[consumer][pod] = next
	r.mu.Unlock()
	if !known || was.State != next.State || was.Incarnation != next.Incarnation || was.Gaps != next.Gaps {
		r.consumerChanged(consumer)
	}
	return true
}

func (r *reports) takeFeedServer(pod string, value []byte, seen, now time.Time) error {
	status, err := wire.Decode[wire.FeedServerStatus](value)
	if err != nil {
		return err
	}
	status.Pod = pod
	next := &feedServerReport{FeedServerReport: observed.FeedServerReport{FeedServerStatus: status, Seen: seen}, alive: now.Sub(seen) <= aliveFor}
	r.mu.Lock()
	was := r.feedServers[pod]
	r.feedServers[pod] = next
	r.mu.Unlock()
	switch {
	case was == nil || was.alive != next.alive || was.Incarnation != next.Incarnation ||
		was.Draining != next.Draining || !maps.Equal(was.Problems, next.Problems) || givesWay(was.GivingWay) != givesWay(next.GivingWay):
		r.feedServerChanged(next.FeedServer, false)
	case was.Revision != next.Revision:
		r.feedServerChanged(next.FeedServer, true)
	}
	return nil
}

// givesWay returns who gives way at a pod, and why, without how many: that number changes each second.
func givesWay(g *wire.GivingWay) string {
	switch {
	case g == nil:
		return ""
	case g.Bulk < 100:
		return g.Cause + "/Bulk"
	default:
		return g.Cause
	}
}

// silentFeedServers notices pods that ceased to report, and returns the FeedServers that they
// belong to. The caller holds the lock.
func (r *reports) silentFeedServers(now time.Time) (silent []string) {
	for _, s := range r.feedServers {
		if s.alive && now.Sub(s.Seen) > aliveFor {
			s.alive = false
			silent = append(silent, s.FeedServer)
		}
	}
	slices.Sort(silent)
	return slices.Compact(silent)
}

// forgetFeedReport removes a report that is gone.
func (r *reports) forgetFeedReport(key string) {
	pod, ofServer := wire.ParseFeedServerStatusKey(key)
	consumer, of, ofConsumer := wire.ParseConsumerStatusKey(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	if ofServer {
		delete(r.feedServers, pod)
	}
	if ofConsumer {
		delete(r.consumers[consumer], of)
	}
}

// ofFeedServers returns every feed server's last report.
func (r *reports) ofFeedServers() []observed.FeedServerReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]observed.FeedServerReport, 0, len(r.feedServers))
	for _, s := range r.feedServers {
		all = append(all, s.FeedServerReport)
	}
	slices.SortFunc(all, func(a, b observed.FeedServerReport) int { return cmp.Compare(a.Pod, b.Pod) })
	return all
}

// ofConsumer returns every feed server's last report about a FeedConsumer.
func (r *reports) ofConsumer(name string) []observed.ConsumerReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.consumers[name]), func(a, b observed.ConsumerReport) int { return strings.Compare(a.Pod, b.Pod) })
}

// ofConsumers returns every feed server's last report about each FeedConsumer, by name.
func (r *reports) ofConsumers() map[string][]observed.ConsumerReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string][]observed.ConsumerReport, len(r.consumers))
	for name, byPod := range r.consumers {
		all[name] = slices.Collect(maps.Values(byPod))
	}
	return all
}

// staleAfter is how long the report of a feed server that is gone is kept: the
// figures that were counted stay in sight for a day.
const staleAfter = 24 * time.Hour

// stale returns the keys of outdated reports: of pods that are long gone, of FeedConsumers that are gone, and of runs that MirrorPartners
// do not show any more.
func (r *reports) stale(p bus.Plan, now time.Time) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := r.staleMirrors(p.Mirrors, now)
	for reader := range r.pullers {
		if !slices.Contains(p.Pullers, reader) {
			keys = append(keys, wire.PullerStatusKey(reader))
		}
	}
	for pod, s := range r.feedServers {
		if now.Sub(s.Seen) > staleAfter {
			keys = append(keys, wire.FeedServerStatusKey(pod))
		}
	}
	for consumer, pods := range r.consumers {
		for pod, c := range pods {
			server := r.feedServers[pod]
			silent := now.Sub(c.Seen) > staleAfter && (server == nil || now.Sub(server.Seen) > staleAfter)
			if silent || !slices.Contains(p.Consumers, consumer) {
				keys = append(keys, wire.ConsumerStatusKey(consumer, pod))
			}
		}
	}
	slices.Sort(keys)
	return keys
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
