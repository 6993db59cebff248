// SPDX-License-Identifier: Apache-2.0

// Command feed-server gives consumers of a Site's Feeds what is new, as it comes.
package main

import (
	feedserver "github.com/substorm/substorm/feed-server"
	"github.com/substorm/substorm/internal/usage"
)

func main() { usage.Main("feed-server", feedserver.Command().ExecuteContext) }
