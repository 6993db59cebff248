// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
)

const (
	// DeletionLimit is how long a Feed or a Site that is deleted waits for streams to go.
	DeletionLimit = 10 * time.Minute
	// deletionLeast is how long an operator that has begun tries at least: the Feed may
	// have been deleted long before.
	deletionLeast = time.Minute
)

// Deletion is how to treat the finalizer of a Feed or a Site.
type Deletion struct {
	// Finalizer says whether it has one. One that is being deleted is gone without.
	Finalizer bool `json:"finalizer,omitempty"`
	// Held is why it is not gone yet; nil if nothing keeps it, or it goes within moments.
	Held *finding.Finding `json:"held,omitempty"`
	// Left is what the deletion gave up and leaves behind; empty: nothing.
	Left string `json:"left,omitempty"`
	// Wait is after how long to look again; 0: when something changes.
	Wait time.Duration `json:"-"`
}

// DeletionClock ends the wait of a deletion.
type DeletionClock struct {
	Now time.Time
	// Begun is when this operator began to look after the Site.
	Begun time.Time
	// Limit is how long a deletion waits; 0: DeletionLimit.
	Limit time.Duration
}

// left is how much longer a resource waits that is being deleted.
func (c DeletionClock) left(o metav1.Object) time.Duration {
	limit := c.Limit
	if limit == 0 {
		limit = DeletionLimit
	}
	end := o.GetDeletionTimestamp().Add(limit)
	if least := c.Begun.Add(min(deletionLeast, limit)); least.After(end) {
		end = least
	}
	return max(0, end.Sub(c.Now))
}

// holdDeletion keeps a deletion waiting for a reason, as long as that lasts; then left describes what stays behind.
func (c DeletionClock) holdDeletion(o metav1.Object, why *finding.Finding, left string) Deletion {
	wait := c.left(o)
	if wait == 0 {
		return Deletion{Left: left}
	}
	if why != nil {
		why.Message += fmt.Sprintf("; it waits until %s at most", wire.FormatTime(c.Now.Add(wait).Truncate(time.Second)))
	}
	return Deletion{Finalizer: true, Held: why, Wait: wait}
}

func hasFinalizer(o metav1.Object) bool {
	return slices.Contains(o.GetFinalizers(), v1alpha1.FinalizerStream)
}

// ownStreamGoes returns whether a Feed has a stream of its own that is removed with it. If the Feed cannot be read, its finalizer decides.
func ownStreamGoes(feed *v1alpha1.Feed) bool {
	if finding.Unreadable(feed) != "" {
		return hasFinalizer(feed)
	}
	return feed.Spec.Stream != nil && feed.Spec.DeletionPolicy == v1alpha1.DeletionDelete
}

// LeavingFeeds are the names of those that are being deleted, and whose own streams go.
func LeavingFeeds(feeds []v1alpha1.Feed) []string {
	var names []string
	for i := range feeds {
		if feeds[i].DeletionTimestamp != nil && hasFinalizer(&feeds[i]) && ownStreamGoes(&feeds[i]) {
			names = append(names, feeds[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// FeedDeletionView is everything that a Feed's finalizer depends on.
type FeedDeletionView struct {
	DeletionClock
	Feed *v1alpha1.Feed
	// Site is nil where it does not exist.
	Site *v1alpha1.Site
	Bus  observed.Bus
	// Removed is what was found of the Feed's own stream since the Feed is being deleted: True if there is none any more, nil if it was not
	// checked.
	Removed *finding.Finding
}

// FeedDeletion plans a Feed's finalizer: it is kept by a Feed with deletionPolicy Delete
// until its own stream is gone, or for as long as the limit is.
func FeedDeletion(v FeedDeletionView) Deletion {
	switch {
	case v.Feed.DeletionTimestamp == nil:
		return Deletion{Finalizer: ownStreamGoes(v.Feed)}
	case !hasFinalizer(v.Feed), !ownStreamGoes(v.Feed), v.Removed != nil && v.Removed.OK():
		return Deletion{}
	case v.Site == nil && finding.Unreadable(v.Feed) == "":
		return Deletion{Left: v.leftWithoutSite()}
	}
	var why *finding.Finding
	switch {
	case v.Site == nil || finding.Unreadable(v.Site) != "":
		why = new(finding.Good(v1alpha1.ReasonUnreadable, "this version of the operator cannot read the Feed or its Site, and so not remove the Feed's stream"))
	case !v.Bus.Up:
		why = new(finding.Good(v1alpha1.ReasonUnreachable, fmt.Sprintf("stream %s cannot be removed, as deletionPolicy says: the operator does not reach JetStream, see the conditions of Site %q",
			v.stream(), v.Site.Name)))
	case v.Removed != nil:
		why = new(finding.Good(v.Removed.Reason, v.Removed.Message))
	}
	return v.holdDeletion(v.Feed, why, fmt.Sprintf("stream %s is left, though deletionPolicy is Delete: JetStream did not remove it in time. "+
		"An operator of the Site removes it once JetStream answers; without the Site run `nats stream rm %[1]s`", v.stream()))
}

// stream names the Feed's own stream.
func (v FeedDeletionView) stream() string {
	if v.Site == nil || v.Site.Spec.Code == "" {
		return wire.FeedStream("<site>", v.Feed.Name)
	}
	return wire.FeedStream(v.Site.Spec.Code, v.Feed.Name)
}

// leftWithoutSite: without the Site it is not known how to reach the servers that hold the stream, if there is one.
func (v FeedDeletionView) leftWithoutSite() string {
	if len(v.Feed.Status.Streams) == 0 {
		return ""
	}
	return fmt.Sprintf("stream %s may be left, though deletionPolicy is Delete: Site %q does not exist any more, whose JetStream holds it. Run `nats stream rm %[1]s`",
		finding.List(v.Feed.Status.Streams), v.Feed.Spec.SiteRef.Name)
}

// FeedDeletionStatus is the status of a Feed that is being deleted: its earlier status, and why it is still there.
func FeedDeletionStatus(v FeedDeletionView, d Deletion) v1alpha1.FeedStatus {
	status := *v.Feed.Status.DeepCopy()
	status.ObservedGeneration = v.Feed.Generation
	status.Conditions = withHeld(v.Now, v.Feed, status.Conditions, d)
	return status
}

// withHeld returns conditions with the condition of a held deletion, or without it.
func withHeld(now time.Time, o metav1.Object, was []metav1.Condition, d Deletion) []metav1.Condition {
	c := finding.Conditions{Now: now, Generation: o.GetGeneration(), Old: was}
	for _, old := range was {
		if old.Type != v1alpha1.ConditionDeletionHeld {
			old.ObservedGeneration = o.GetGeneration()
			c.All = append(c.All, old)
		}
	}
	if d.Held != nil {
		c.Set(v1alpha1.ConditionDeletionHeld, *d.Held)
	}
	return c.All
}

// SiteDeletionView is everything that a Site's finalizer depends on.
type SiteDeletionView struct {
	DeletionClock
	Site *v1alpha1.Site
	// Feeds are all of the Site, those that are being deleted too.
	Feeds    []v1alpha1.Feed
	Accepted finding.Finding
	Bus      observed.Bus
	// Doomed are the streams of deleted Feeds that JetStream has not removed yet, as their Feeds asked; nil if this was not checked since
	// JetStream was reached.
	Doomed []string
}

// SiteDeletion plans a Site's finalizer: it is kept while Feeds with deletionPolicy Delete, or their streams, exist, since its JetStream
// cannot be reached without it; when the Site is deleted, for as long as the limit is.
func SiteDeletion(v SiteDeletionView) Deletion {
	var feeds, stay, streams []string
	for i := range v.Feeds {
		if f := &v.Feeds[i]; ownStreamGoes(f) || hasFinalizer(f) {
			feeds = append(feeds, f.Name)
			streams = append(streams, wire.FeedStream(v.Site.Spec.Code, f.Name))
			if f.DeletionTimestamp == nil {
				stay = append(stay, f.Name)
			}
		}
	}
	known := v.Doomed != nil || !v.Accepted.OK()
	has := hasFinalizer(v.Site)
	free := len(feeds) == 0 && known && len(v.Doomed) == 0
	switch {
	case v.Site.DeletionTimestamp == nil:
		return Deletion{Finalizer: len(feeds) > 0 || has && !free}
	case !has, free:
		return Deletion{}
	}
	streams = append(streams, v.Doomed...)
	slices.Sort(streams)
	var why *finding.Finding
	switch {
	case len(stay) > 0:
		why = new(finding.Good(v1alpha1.ReasonFeedsRemain, fmt.Sprintf("of its Feeds %s have deletionPolicy Delete, and without the Site nobody could remove their streams: "+
			"delete them, or set their deletionPolicy to Retain", finding.List(stay))))
	case !v.Bus.Up:
		why = new(finding.Good(v1alpha1.ReasonUnreachable, "streams of deleted Feeds cannot be removed, as deletionPolicy says: the operator does not reach JetStream"))
	case len(feeds) > 0 || len(v.Doomed) > 0:
		why = new(finding.Good(v1alpha1.ReasonProgressing, fmt.Sprintf("these streams of deleted Feeds are being removed: %s", finding.List(streams))))
	}
	left := "streams of Feeds whose deletionPolicy is Delete may be left: the operator did not reach JetStream in time"
	if len(streams) > 0 {
		left = fmt.Sprintf("these streams are left, though the deletionPolicy of their Feeds is Delete: %s. Remove each with `nats stream rm`", finding.List(streams))
	}
	return v.holdDeletion(v.Site, why, left)
}
