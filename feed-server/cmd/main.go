// SPDX-License-Identifier: Apache-2.0

// Command feed-server gives consumers of a Site's Feeds what is new, as it comes.
package main

import "github.com/substorm/substorm/internal/usage"

func main() { usage.Main("feed-server", command().ExecuteContext) }
