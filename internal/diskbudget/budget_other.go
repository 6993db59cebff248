// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package diskbudget

// Budget is of Linux alone, where `substorm up` runs. A nil one has no end.
type Budget struct{}

// State is what is known of a budget.
type State struct{ Decision }

// State of a nil Budget.
func (b *Budget) State() State { return State{} }

// Scarce says whether nothing may be begun that takes space before it frees some.
func (b *Budget) Scarce() bool { return false }

// NoReceipts says whether nothing more may be received.
func (b *Budget) NoReceipts() bool { return false }

// Archived notes nothing.
func (b *Budget) Archived(int64, int64) {}
