// SPDX-License-Identifier: Apache-2.0

// Package output is the -o json of commands that list something.
package output

import (
	"encoding/json"
	"io"

	"github.com/substorm/substorm/internal/usage"
)

// JSON is the format of one object per line.
const JSON = "json"

// Check refuses what is neither JSON nor empty, which stands for a table.
func Check(format string) error {
	if format != "" && format != JSON {
		return usage.Errorf("-o %s: there is json", format)
	}
	return nil
}

// Lines writes each as JSON, one per line.
func Lines[T any](w io.Writer, all []T) error {
	enc := json.NewEncoder(w)
	for _, one := range all {
		if err := enc.Encode(one); err != nil {
			return err
		}
	}
	return nil
}
