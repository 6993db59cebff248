// SPDX-License-Identifier: Apache-2.0

package instrument

import (
	"fmt"
	"time"

	"github.com/substorm/substorm/internal/secret"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// contentAge is how long an Instrument is reported to send undeclared content: people look once a day.
const contentAge = 24 * time.Hour

// undeclaredType is spec.archive.mediaType of Instruments that declare none.
const undeclaredType = "application/octet-stream"

// contentIsUnexpected: objects of the last day are not of the media type that they are declared to have. While JetStream is away, the
// earlier condition stays.
func contentIsUnexpected(v View) (finding.Finding, bool) {
	if was := finding.Condition(v.Instrument.Status.Conditions, v1alpha1.ConditionContentAsDeclared); !v.Bus.Up && was != nil {
		return finding.From(was), true
	}
	c := v.Content
	if c == nil || v.Now.Sub(c.ReceivedAt) > contentAge {
		return finding.Finding{}, false
	}
	objects := "one object"
	if n := roundedCount(c.Today); n > 1 {
		objects = fmt.Sprintf("%d or more objects", n)
	}
	if secret.IsMediaType(c.Looks) {
		return finding.Bad(v1alpha1.ReasonUnexpectedContent, fmt.Sprintf(
			"%s received on %s may contain secrets, which whoever may read the archive can read: %q looks like %s; replace these keys and passwords where they are used, "+
				"and remove the objects with substorm archive purge, which takes many at once by --received, --from or --match; substorm archive inspect shows who sent them",
			objects, wire.DayOf(c.ReceivedAt), c.Path, c.Looks)), true
	}
	declared := c.MediaType
	if of := v.Instrument.Spec.Archive.MediaType; of != "" && of != undeclaredType && of != declared { // the object has its sender's type
		declared = of + ", was sent as " + declared
	}
	return finding.Bad(v1alpha1.ReasonUnexpectedContent, fmt.Sprintf(
		"the content of %s received on %s contradicts the declared media type: %q is declared as %s, and looks like %s; such objects are kept: "+
			"substorm archive inspect shows who sent it, substorm archive retract takes many at once by --received, --from or --match, "+
			"and spec.archive.mediaType declares another type",
		objects, wire.DayOf(c.ReceivedAt), c.Path, declared, c.Looks)), true
}

// roundedCount is the greatest of 1, 2, 5, 10, 20, 50, … that a count reaches: a status is not written for each object.
func roundedCount(n uint64) uint64 {
	for step := uint64(1); ; step *= 10 {
		switch {
		case n < 2*step:
			return step
		case n < 5*step:
			return 2 * step
		case n < 10*step:
			return 5 * step
		}
	}
}
