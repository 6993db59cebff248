// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/feeds"
	"github.com/substorm/substorm/operator/plan/observed"
)

// The counts of a feed server for a consumer stay: an operator that starts again reads reports
// that were written when something changed, maybe hours ago, and of pods that are gone. They do
// not say how the consumer does now.
func TestCountsOfAConsumerStay(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	report := func(pod string, age time.Duration, gaps uint64) observed.ConsumerReport {
		return observed.ConsumerReport{Pod: pod, Seen: now.Add(-age), ConsumerStatus: wire.ConsumerStatus{Incarnation: pod, State: wire.StateOverrun, Connections: 1,
			LagMessages: 5, Messages: 100 * gaps, Gaps: gaps, Dropped: map[string]uint64{"Lag": gaps}}}
	}
	gone, quiet := report("gone", 2*time.Hour, 3), report("quiet", time.Hour, 4)
	sum := feeds.MergeConsumer([]observed.ConsumerReport{gone, quiet}, nil, now)
	if sum.Gaps != 7 || sum.Messages != 700 || sum.Dropped["Lag"] != 7 {
		t.Errorf("%d gaps, %d messages, %v dropped: want what both counted", sum.Gaps, sum.Messages, sum.Dropped)
	}
	if sum.State != v1alpha1.ReasonIdle || sum.Connections != 0 || sum.LagMessages != 0 {
		t.Errorf("state %s, %d connections, lag %d by reports of pods that are silent", sum.State, sum.Connections, sum.LagMessages)
	}
	alive := observed.FeedServerReport{Seen: now}
	alive.Pod, alive.Incarnation = "quiet", "quiet"
	if sum := feeds.MergeConsumer([]observed.ConsumerReport{gone, quiet}, []observed.FeedServerReport{alive}, now); sum.State != v1alpha1.ReasonOverrun || sum.Connections != 1 || sum.Gaps != 7 {
		t.Errorf("state %s, %d connections, %d gaps", sum.State, sum.Connections, sum.Gaps)
	}
}
