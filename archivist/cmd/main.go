// SPDX-License-Identifier: Apache-2.0

// Command archivist does for a whole Site what is done with stored data.
package main

import (
	"github.com/substorm/substorm/archivist"
	"github.com/substorm/substorm/internal/usage"
)

func main() { usage.Main("archivist", archivist.Command().ExecuteContext) }
