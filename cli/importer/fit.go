// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"time"

	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/wire"
)

// fitting makes records of names.
type fitting struct {
	site, instrument, mediaType, run string
	template                         *naming.Template
	// settle is how long a thing must not have been written to.
	settle time.Duration
	// lateAfter is how long after it was observed what comes is backfill.
	lateAfter time.Duration
}

// record makes the record of an item but for what only its bytes tell. The
// digest is what its name says of it. Errors: *unplaced.
func (f fitting) record(i item, key string, now time.Time) (r wire.Record, digest string, err error) {
	if err := f.check(i, key, now); err != nil {
		return wire.Record{}, "", err
	}
	v, err := f.template.Read(i.name)
	if err != nil {
		return wire.Record{}, "", &unplaced{NameDoesNotFit, err}
	}
	if v.Instrument != "" && v.Instrument != f.instrument {
		return wire.Record{}, "", because(OtherInstrument, "its name says that it is of instrument %s: import that one with --instrument %[1]s", v.Instrument)
	}
	r = wire.Record{
		ID: key, Key: key, Name: i.name, Size: i.size, MediaType: f.mediaType, State: wire.StateCurrent,
		// The time of the import is of no use: all of an old tree would be of one day.
		ReceivedAt: i.modified.UTC(), TimeSource: wire.TimeSourceReceived,
		Completeness: wire.CompletenessUnverified, Gateway: wire.ImportWriter, Incarnation: f.run,
	}
	if f.template.HasTime() {
		r.SetImported(v.Time, f.template.Resolution(), now)
	}
	// It comes now, and was observed before its file was modified.
	r.Backfill = r.IsLate(now, f.lateAfter)
	return r, v.Digest, nil
}

func (f fitting) check(i item, key string, now time.Time) error {
	if err := wire.CheckKey(key); err != nil {
		return &unplaced{NameNotAllowed, err}
	}
	switch age := now.Sub(i.modified); {
	case i.size == 0:
		return because(Empty, "it holds no byte, and an object has at least one")
	case i.modified.Unix() < 0:
		return because(TooOld, "its modification time %s, as which it would count as received, is before 1970: touch it", wire.FormatTime(i.modified))
	case age < 0:
		return because(TooYoung, "its modification time %s has not come yet: correct the clock, or touch it", wire.FormatTime(i.modified))
	case age < f.settle:
		return because(TooYoung, "it was written to %v ago, and may be again: import once more later", age.Round(time.Millisecond))
	}
	return nil
}
