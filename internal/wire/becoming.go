// SPDX-License-Identifier: Apache-2.0

package wire

import "time"

// The archivist alone changes a listed object, with these functions. Tests of readers make their records with them, too, so that
// each state has the members that it has in a manifest.

// Supersede lists an object as replaced by a newer version.
func (r *Record) Supersede() { r.State = StateSuperseded }

// Retract lists an object as retracted.
func (r *Record) Retract(reason, by string, at time.Time) {
	r.State, r.Reason, r.ChangedBy, r.RetractedAt, r.RestoredAt = StateRetracted, reason, by, &at, nil
}

// Restore lists an object that was retracted as what it is without that: current, or superseded by a newer version.
func (r *Record) Restore(reason, by string, at time.Time, superseded bool) {
	r.State = StateCurrent
	if superseded {
		r.State = StateSuperseded
	}
	r.Reason, r.ChangedBy, r.RestoredAt, r.Outdated = reason, by, &at, false
}

// Purge lists an object as purged by request.
func (r *Record) Purge(reason, by string, at time.Time) {
	r.State, r.Reason, r.ChangedBy, r.PurgedAt = StatePurged, reason, by, &at
}

// Expire lists an object as purged because its Instrument keeps nothing longer.
func (r *Record) Expire(reason string, at time.Time) { r.Purge(reason, ByRetention, at) }

// Expired says whether an object is gone because its Instrument keeps nothing longer.
func (r *Record) Expired() bool { return r.State == StatePurged && r.ChangedBy == ByRetention }

// IsRetraction says whether a retraction stands: the object was retracted and not restored, whatever became of its bytes later.
func (r *Record) IsRetraction() bool { return r.RetractedAt != nil && r.RestoredAt == nil }

// RetractedAgain says whether an object of another Site, which was retracted here because it was there, was restored there and retracted again at a
// later time. By is who asked for the first retraction.
func (r *Record) RetractedAgain(by string, at *time.Time) bool {
	return r.State == StateRetracted && r.ChangedBy == by && r.Origin != nil && at != nil && (r.Origin.RetractedAt == nil || at.After(*r.Origin.RetractedAt))
}

// Outcome is the state that readers outside the archive see: an object that expired is distinguished from one that was purged by request.
func (r *Record) Outcome() State {
	if r.Expired() {
		return StateExpired
	}
	return r.State
}
