// SPDX-License-Identifier: Apache-2.0

package mirrorindex

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// MaxSize is the greatest size of an object in bytes, S3's own.
const MaxSize = 5 << 40

// maxYear is the last one that a time of receipt may have: files and programs keep times as nanoseconds in 64 bits, which end in 2262.
const maxYear = 2261

// maxID is the greatest length of an ID in bytes: a key in S3, of at most 1024, and a number.
const maxID = 1100

// label is the name of an Instrument or the code of a Site: a DNS label (RFC 1123).
var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// Check says what a mirror cannot take from a root: names go into paths and keys there.
func (r *Root) Check() error {
	if r.Format != Format {
		return fmt.Errorf("%w (%d, not %d)", ErrFormat, r.Format, Format)
	}
	if !label.MatchString(r.Site) {
		return fmt.Errorf("site %.80q is not a DNS label", r.Site)
	}
	for i := range r.Instruments {
		if !label.MatchString(r.Instruments[i].Instrument) {
			return fmt.Errorf("instrument %.80q is not a DNS label", r.Instruments[i].Instrument)
		}
	}
	if r.Now.IsZero() {
		return errors.New("it does not state the current time")
	}
	return nil
}

// Check says what a mirror cannot take from a line about a month or a day.
func (l *DaysLine) Check() error {
	if l.Month != "" {
		if _, err := time.Parse("2006-01", l.Month); err != nil || l.Day != "" {
			return fmt.Errorf("invalid month %.20q", l.Month)
		}
		return nil
	}
	if _, err := l.Day.Start(); err != nil {
		return fmt.Errorf("invalid day %.20q", l.Day)
	}
	return nil
}

// Check says what a mirror cannot take from an entry. Which paths it has is for the mirror to say. Errors: ErrTime, others.
func (e *Entry) Check() error {
	switch {
	case e.ID == "" || len(e.ID) > maxID:
		return fmt.Errorf("object %.80q has no ID, or one of more than %d bytes", e.Path, maxID)
	case e.Size < 0 || e.Size > MaxSize:
		return fmt.Errorf("object %.80q has %d bytes: the size must be 0 to %d", e.Path, e.Size, int64(MaxSize))
	case e.Digest == wire.Digest{}:
		return fmt.Errorf("object %.80q has no SHA-256", e.Path)
	}
	return e.checkTime()
}

// ErrTime: an object was received at a time that none was. A Site has such objects where files with that time were imported, so it
// is about that object alone.
var ErrTime = errors.New("the time of receipt must not be before 1970 or after " + strconv.Itoa(maxYear))

func (e *Entry) checkTime() error {
	if e.ReceivedAt.Unix() < 0 || e.ReceivedAt.UTC().Year() > maxYear {
		return fmt.Errorf("object %.80q was received at %v: %w", e.Path, e.ReceivedAt, ErrTime)
	}
	return nil
}
