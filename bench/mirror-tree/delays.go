// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"
)

// parseDelays reads durations.
func parseDelays(text string) (all []time.Duration, err error) {
	for part := range strings.SplitSeq(text, ",") {
		d, err := time.ParseDuration(part)
		if part == "0" {
			d, err = 0, nil
		}
		if err != nil || d < 0 {
			return nil, fmt.Errorf("-delays: %q is no duration such as 30ms", part)
		}
		all = append(all, d)
	}
	return all, nil
}
