// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// Number is what an environment variable says, or the default: a whole number that is
// not less than least.
func Number(variable string, otherwise, least int) (int, error) {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least {
		return 0, fmt.Errorf("%s=%s: it takes a number, at least %d", variable, text, least)
	}
	return n, nil
}

// Duration is what an environment variable says, or the default: a time that is not zero.
func Duration(variable string, otherwise time.Duration) (time.Duration, error) {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s=%s: it takes a duration, 10s say", variable, text)
	}
	return d, nil
}
