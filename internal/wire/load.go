// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"time"
)

// LoadReportInterval is how often a pod reports itself, with its load. Reports on instruments and consumers come less often.
const LoadReportInterval = time.Second

// The budgets of pods: resources that a pod has a limited amount of.
const (
	// BudgetCPU is the time that a pod's processors have, as its limit says.
	BudgetCPU = "cpu"
	// BudgetMemory is what received data may take of a gateway's memory before it is stored.
	BudgetMemory = "memory"
	// BudgetReceiveQueue is the kernel's buffer of the UDP port that is fullest.
	BudgetReceiveQueue = "receiveQueue"
	// BudgetSpool is what a gateway's volume has for objects that wait for the object store or JetStream.
	BudgetSpool = "spool"
	// BudgetConnections are connections of TCP.
	BudgetConnections = "connections"
	// BudgetEventStreams are answers of a feed server that do not end by themselves: consumers' connections and event streams.
	BudgetEventStreams = "eventStreams"
	// BudgetBacklog are requests that a feed server has begun to answer, or that wait for their turn there.
	BudgetBacklog = "backlog"
)

// Load is what a pod had to do since its last report.
type Load struct {
	// Fill of each budget that the pod has, 0 to 1.
	Fill map[string]float64 `json:"fill,omitempty"`
	// BytesPerSecond and PacketsPerSecond that came in at a gateway, BytesPerSecond that a feed server sent.
	BytesPerSecond   int64 `json:"bytesPerSecond"`
	PacketsPerSecond int64 `json:"packetsPerSecond,omitempty"`
	// Answered requests of a feed server; Refused for want of capacity (503); Limited (429), as a client asked more often than it may.
	Answered int64 `json:"answered,omitempty"`
	Refused  int64 `json:"refused,omitempty"`
	Limited  int64 `json:"limited,omitempty"`
}

// maxBudget bounds the name of a budget.
const maxBudget = 32

// IsBudget says whether a name can be a budget's. Those of newer versions are not known here; all are of letters, so that they can stand in a
// status, a log and a metric.
func IsBudget(name string) bool {
	return name != "" && len(name) <= maxBudget && !strings.ContainsFunc(name, func(c rune) bool { return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') })
}
