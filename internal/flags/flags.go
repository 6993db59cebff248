// SPDX-License-Identifier: Apache-2.0

// Package flags is what the programs' command lines have in common.
package flags

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// FromEnvironment sets the flags that were not given from SUBSTORM_<FLAG>:
// --nats-servers from SUBSTORM_NATS_SERVERS. Error: a value that its flag does
// not take.
func FromEnvironment(f *pflag.FlagSet, getenv func(string) string) error {
	var err error
	f.VisitAll(func(flag *pflag.Flag) {
		name := "SUBSTORM_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		if value := getenv(name); value != "" && !flag.Changed && err == nil {
			if setErr := f.Set(flag.Name, value); setErr != nil {
				err = fmt.Errorf("%s=%q: %w", name, value, setErr)
			}
		}
	})
	return err
}
