// SPDX-License-Identifier: Apache-2.0

// Command metrics-bridge serves external metrics to HorizontalPodAutoscalers.
package main

import (
	"github.com/substorm/substorm/internal/usage"
	metricsbridge "github.com/substorm/substorm/metrics-bridge"
)

func main() { usage.Main("metrics-bridge", metricsbridge.Command().ExecuteContext) }
