// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ConditionSpaceLeft: the disk budget of a Site that substorm up runs is not nearly used up. Absent on a cluster.
// Ready does not wait for it: what is archived is served also while nothing is received.
const ConditionSpaceLeft = "SpaceLeft"

// Reasons of a Site's SpaceLeft condition.
const (
	// ReasonWithinBudget: there is space.
	ReasonWithinBudget = "WithinBudget"
	// ReasonNearlyFull: what can be made again or partners have expires, or archived messages go before their retention is over.
	ReasonNearlyFull = "NearlyFull"
	// ReasonBudgetUsedUp: nothing is received.
	ReasonBudgetUsedUp = "BudgetUsedUp"
	// ReasonStreamsStopped: the embedded NATS server could not write, and stores nothing until it is started again, which it is once there is space.
	ReasonStreamsStopped = "StreamsStopped"
)

// DiskState is what a Site that substorm up runs takes of its computer's disk, rounded down to three digits of the budget.
type DiskState struct {
	// BudgetBytes is what the data folder may have: --disk-budget, or less where the disk has less.
	// +required
	BudgetBytes int64 `json:"budgetBytes"`
	// UsedBytes is what the data folder has.
	// +required
	UsedBytes int64 `json:"usedBytes"`
	// ObjectBytes is how much of that the archive is.
	// +required
	ObjectBytes int64 `json:"objectBytes"`
	// StreamBytes is how much of that the streams of the NATS server are.
	// +required
	StreamBytes int64 `json:"streamBytes"`
	// ReproducibleBytes is how much of the archive can be made again: archive.expiry.whenDiskFull of Instruments says so.
	// +required
	ReproducibleBytes int64 `json:"reproducibleBytes"`
}
