// SPDX-License-Identifier: Apache-2.0

// Command ingest-gateway receives what a Site's instruments send, archives it
// and announces it.
package main

import (
	ingestgateway "github.com/substorm/substorm/ingest-gateway"
	"github.com/substorm/substorm/internal/usage"
)

func main() { usage.Main("ingest-gateway", ingestgateway.Command().ExecuteContext) }
