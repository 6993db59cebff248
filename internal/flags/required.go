// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"errors"
	"fmt"
)

// Required returns an error that names each flag which is not set, nil where all are.
// It takes names and values in turn.
func Required(namesAndValues ...string) error {
	var errs []error
	for i := 0; i+1 < len(namesAndValues); i += 2 {
		if namesAndValues[i+1] == "" {
			errs = append(errs, fmt.Errorf("%s is not set", namesAndValues[i]))
		}
	}
	return errors.Join(errs...)
}
