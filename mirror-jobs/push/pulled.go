// SPDX-License-Identifier: Apache-2.0

package push

// ErrNotPulled is ErrOwed of a pull: what is owed is owed to the archive here.
var ErrNotPulled error = notPulled{}

type notPulled struct{}

// Error implements error.
func (notPulled) Error() string { return "not all that is selected has come from the other side" }

// Is says that it is ErrOwed.
func (notPulled) Is(target error) bool { return target == ErrOwed }
