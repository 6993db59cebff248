// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"errors"
	"fmt"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/gateway"
	"github.com/substorm/substorm/mirror-jobs/https"
	"github.com/substorm/substorm/mirror-jobs/push"
)

// owe counts a file that did not come; err is nil if no attempt was made.
func (r *run) owe(path string, err error) {
	r.owed++
	if r.firstOwed == "" {
		r.firstOwed, r.firstErr = path, err
	}
	if conflicts(err) && !conflicts(r.firstErr) { // an error that no later run changes is reported first
		r.firstOwed, r.firstErr = path, err
	}
}

// mayWrite returns why a run must not write into an Instrument that spec.paths names. Gateways would refuse each file.
func mayWrite(cfg Config) error {
	for _, path := range cfg.Entry.Paths {
		if cfg.HasListeners != nil && cfg.HasListeners(path.Instrument) {
			return &push.Problem{Reason: wire.MirrorReasonHasListeners, Err: fmt.Errorf("spec.paths gives %q to Instrument %q, which has listeners: "+
				"its senders would be refused names that the partner used before. Declare an Instrument without listeners for what is pulled, and name it in spec.paths",
				path.Pattern, path.Instrument)}
		}
	}
	return nil
}

// leaves is the error of a run that could not bring all; nil where it could.
func (r *run) leaves() error {
	switch {
	case r.owed == 0:
		return nil
	case r.firstOwed == "":
		return &push.Problem{Reason: wire.MirrorReasonProtocol, Answered: true, Err: fmt.Errorf("%w: %d files", push.ErrNotPulled, r.owed)}
	case r.firstErr == nil:
		return &push.Problem{Reason: wire.MirrorReasonOwed, Answered: true,
			Err: fmt.Errorf("%w: %d files, as %q: a run without --verify-only brings them", push.ErrNotPulled, r.owed, r.firstOwed)}
	}
	err := fmt.Errorf("%w: %d files, as %q: %w", push.ErrNotPulled, r.owed, r.firstOwed, r.firstErr)
	if !conflicts(r.firstErr) {
		err = fmt.Errorf("%w; the next run tries again", err)
	}
	return &push.Problem{Reason: reasonOf(r.firstErr), Answered: true, Err: err}
}

// reasonOf says as a reason of reports why a file did not come.
func reasonOf(why error) string {
	var p *push.Problem
	var refused *gateway.RefusedError
	var gone *https.RefusedError
	switch {
	case errors.As(why, &p):
		return p.Reason
	case errors.As(why, &refused):
		return refused.Reason()
	case errors.Is(why, ErrTooLarge):
		return wire.MirrorReasonRefused
	case errors.As(why, &gone), errors.Is(why, https.ErrBroken):
		return https.ReasonOf(why)
	default: // the other side lists a file that it does not give
		return wire.MirrorReasonProtocol
	}
}

// conflicts says whether a gateway refused a file since its name has other bytes here, and the Instrument keeps no versions.
func conflicts(err error) bool {
	var refused *gateway.RefusedError
	return errors.As(err, &refused) && refused.Cause == wire.CauseNameConflict
}
