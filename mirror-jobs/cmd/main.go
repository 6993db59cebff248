// SPDX-License-Identifier: Apache-2.0

// Command mirror-jobs makes the runs of MirrorPartners.
package main

import (
	"github.com/substorm/substorm/internal/usage"
	mirrorjobs "github.com/substorm/substorm/mirror-jobs"
)

func main() { usage.Main("mirror-jobs", mirrorjobs.Command().ExecuteContext) }
