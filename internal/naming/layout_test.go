// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"errors"
	"testing"
)

func TestParseLayout(t *testing.T) {
	for template, good := range map[string]bool{
		"{instrument}/{name}":                              true,
		"{year}/{instrument}_{name}":                       true,
		"{name}/{instrument}":                              true,
		"{year}/{month}/{day}/{instrument}-{id}":           true,
		"{year}/{month}/{day}/{instrument}-{station}/{id}": false,
		"{year}/{instrument}-{name}":                       false,
		"{instrument}/{year}/{doy}/{digest}":               true,
		"{instrument}/{digest}":                            false,
		"{instrument}/{year}/{month}/{digest:16}":          false,
		"{station}/{name}":                                 false,
		"{instrument}/{year}/{month}/{day}/{sequence}":     false,
		"{instrument}/{year}/{month}/{day}/{hour}":         false,
		"{instrument}/{nome}":                              false,
	} {
		if _, err := ParseLayout(template); (err == nil) != good || err != nil && !errors.Is(err, ErrTemplate) {
			t.Errorf("%s: %v", template, err)
		}
	}
}
