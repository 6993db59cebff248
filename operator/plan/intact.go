// SPDX-License-Identifier: Apache-2.0

package plan

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// DamageCounts are how many objects of a Site are known to be damaged.
type DamageCounts struct {
	Confirmed   int64 `json:"confirmed,omitempty"`
	Missing     int64 `json:"missing,omitempty"`
	Unconfirmed int64 `json:"unconfirmed,omitempty"`
}

// Add counts one object.
func (c *DamageCounts) Add(d wire.Damage) {
	if !d.Confirmed {
		c.Unconfirmed++
		return
	}
	c.Confirmed++
	if d.Cause == wire.DamageMissing {
		c.Missing++
	}
}

// archive is what is known of damage, and when the archivist last looked: the current status, until the archivist has reported.
func (v SiteView) archive() *v1alpha1.ArchiveState {
	if v.Scrub == nil {
		return archiveThatStands(v.Site.Status.Archive)
	}
	return &v1alpha1.ArchiveState{LastPass: archivePass(v.Scrub.LastPass), Pass: archivePass(v.Scrub.Pass),
		DamagedCount: v.Damage.Confirmed, MissingCount: v.Damage.Missing, UnconfirmedCount: v.Damage.Unconfirmed}
}

// archiveThatStands returns the archive of a status without passes that lack their time: the API server dropped the time from a status that
// another version wrote, and accepts none without.
func archiveThatStands(was *v1alpha1.ArchiveState) *v1alpha1.ArchiveState {
	if was == nil {
		return nil
	}
	is := *was
	for _, pass := range []**v1alpha1.ArchivePass{&is.LastPass, &is.Pass} {
		if *pass != nil && (*pass).StartTime.IsZero() {
			*pass = nil
		}
	}
	return &is
}

// archivePass is a pass with times in whole seconds, as the API server keeps them.
func archivePass(p *wire.ScrubPass) *v1alpha1.ArchivePass {
	if p == nil {
		return nil
	}
	is := &v1alpha1.ArchivePass{StartTime: metav1.Time{Time: p.BegunAt.UTC()}.Rfc3339Copy(), Instrument: p.Instrument, Day: string(p.Day),
		ObjectCount: int64(p.Objects), UnreadableDayCount: int64(p.Unreadable)}
	if p.EndedAt != nil {
		is.CompletionTime = new(metav1.Time{Time: p.EndedAt.UTC()}.Rfc3339Copy())
	}
	return is
}
