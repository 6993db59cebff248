// SPDX-License-Identifier: Apache-2.0

package wire

import "time"

// A time of observation that lies further from the receipt is not believed: a receiver that counts GPS weeks wrongly is 1024
// weeks behind, and a clock that was not set begins at its epoch. A leap year and a day contain what a station sends after a
// winter without a link; a day contains what is dated in local time.
const (
	maxObservedPast   = 366 * 24 * time.Hour
	maxObservedFuture = 24 * time.Hour
)

// The names of an imported tree may tell times of any year in which instruments recorded. Names of the years 1, 1601 and 9999 are zeros
// and limits of date types. Both bounds lie years within the times whose nanoseconds fit in 64 bits.
var (
	firstImported = time.Date(1700, 1, 1, 0, 0, 0, 0, time.UTC)
	lastImported  = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

// BelievesObserved says whether a time of observation in a name, a header or a payload is believed of what was received at a time. A time
// that is not believed is kept as stated, and neither ends an embargo nor orders nor spans anything.
func BelievesObserved(observed, received time.Time) bool {
	first, last := BelievedObserved(received)
	return !observed.Before(first) && !observed.After(last)
}

// BelievedObserved returns the first and the last time of observation that is believed of what was received at a time.
func BelievedObserved(received time.Time) (first, last time.Time) {
	return received.Add(-maxObservedPast), received.Add(maxObservedFuture)
}

// ObservedSpan returns the first and the last instant of the observation in something that was received at a time. If no time is stated,
// or one that is not believed, the receipt counts, and told is false.
func ObservedSpan(observedFrom, observedTo *time.Time, received time.Time) (from, to time.Time, told bool) {
	from, to, told = spanOf(observedFrom, observedTo)
	if !told || !BelievesObserved(from, received) || !BelievesObserved(to, received) {
		return received, received, false
	}
	return from, to, true
}

func spanOf(observedFrom, observedTo *time.Time) (from, to time.Time, told bool) {
	switch {
	case observedFrom == nil && observedTo == nil:
		return from, to, false
	case observedFrom == nil:
		return *observedTo, *observedTo, true
	case observedTo == nil || observedTo.Before(*observedFrom):
		return *observedFrom, *observedFrom, true
	default:
		return *observedFrom, *observedTo, true
	}
}

// ObservedSpan is ObservedSpan of an object. The names of what was imported are believed however far they lie from the receipt:
// who imports a tree declares what they tell, and says so of years at once.
func (r *Record) ObservedSpan() (from, to time.Time, told bool) {
	from, to, told = spanOf(r.ObservedFrom, r.ObservedTo)
	if !told || !r.believes(from, to) {
		return r.ReceivedAt, r.ReceivedAt, false
	}
	return from, to, true
}

// believes says whether the times of observation that the object tells are believed.
func (r *Record) believes(from, to time.Time) bool {
	if r.Gateway == ImportWriter {
		return !from.Before(firstImported) && to.Before(lastImported)
	}
	return BelievesObserved(from, r.ReceivedAt) && BelievesObserved(to, r.ReceivedAt)
}

// Observed returns the first and the last instant that the object observes; when it was received, where that is not known or
// not believed.
func (r *Record) Observed() (from, to time.Time) {
	from, to, _ = r.ObservedSpan()
	return from, to
}

// ObservedEnd is the time by which an embargo counts: when all of the object had been observed, or else when it was received.
func (r *Record) ObservedEnd() time.Time {
	_, to := r.Observed()
	return to
}

// When is the time by which an object is newer than another: the end of its
// observation, else its receipt. Nothing is observed after it was received: where a
// clock says so, the receipt counts.
func (r *Record) When() time.Time {
	if end := r.ObservedEnd(); end.Before(r.ReceivedAt) {
		return end
	}
	return r.ReceivedAt
}

// SetObserved notes that the object's name tells when it was observed, as exactly as resolution.
func (r *Record) SetObserved(from time.Time, resolution time.Duration) {
	to := from.Add(resolution - 1)
	if _, last := BelievedObserved(r.ReceivedAt); r.Gateway != ImportWriter && to.After(last) && !from.After(last) {
		to = last // the name of a day, by a clock of local time, ends later than what is believed
	}
	if !r.believes(from, to) {
		r.Doubted = &TimeSpan{From: from, To: to}
		return
	}
	r.ObservedFrom, r.ObservedTo, r.TimeSource = &from, &to, TimeSourceName
}

// SetImported is SetObserved for what is imported now: its receipt is the time of its file, which a copy may have changed either way.
func (r *Record) SetImported(from time.Time, resolution time.Duration, now time.Time) {
	if from.After(now.Add(maxObservedFuture)) {
		r.Doubted = &TimeSpan{From: from, To: from.Add(resolution - 1)}
		return
	}
	r.SetObserved(from, resolution)
}

// Told returns from when to when the object states that it observes: as that is believed, or else as it is doubted. All are nil if it
// states nothing.
func (r *Record) Told() (from, to *time.Time, doubted *TimeSpan) {
	first, last, told := r.ObservedSpan()
	switch {
	case told:
		return &first, &last, r.Doubted
	case r.Doubted != nil:
		return nil, nil, r.Doubted
	}
	if first, last, told = spanOf(r.ObservedFrom, r.ObservedTo); told {
		doubted = &TimeSpan{From: first, To: last}
	}
	return nil, nil, doubted
}

// ClockStatus is what the archivist reports of the times that an instrument tells, when one was not believed, and when one was
// again.
type ClockStatus struct {
	// DoubtedAt is when the last object with a time that was not believed was received, and Offset by how much its clock was behind the
	// gateway's then; negative if it was ahead.
	DoubtedAt time.Time `json:"doubtedAt"`
	Offset    Span      `json:"offset"`
	// Doubted is how many objects stated such a time so far.
	Doubted uint64 `json:"doubted"`
	// BelievedAt is when the first object after it with believed times was received; absent if there was none.
	BelievedAt *time.Time `json:"believedAt,omitempty"`
}

const clockKey = "clock."

// ClockStatusKey is where the archivist reports of the times that an instrument tells.
func ClockStatusKey(instrument string) string { return clockKey + instrument }

// ParseClockStatusKey returns the instrument that a key of the status bucket names, and false for other keys.
func ParseClockStatusKey(key string) (instrument string, ok bool) { return named(key, clockKey) }
