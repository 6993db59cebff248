// SPDX-License-Identifier: Apache-2.0

// Package usage marks errors that say that a command line makes no sense, so
// that the program ends with the exit code for these.
package usage

import "fmt"

// Error is a command line that makes no sense.
type Error struct{ error }

// Errorf is fmt.Errorf of an Error.
func Errorf(format string, args ...any) error { return Error{fmt.Errorf(format, args...)} }

func (e Error) Unwrap() error { return e.error }
