// SPDX-License-Identifier: Apache-2.0

// Package diskbudget bounds what a Site that runs in one process takes of its computer's disk. It measures, and Plan, which is pure, says
// what is given up, in this order: objects that can be made again; objects that partners have; messages that are archived; receipts. Data
// that exists nowhere else is never removed. The archivist removes, and the gateway refuses: each asks the Budget of its process.
package diskbudget

// Parts of the budget, in percent, at which a step begins, and below which it ends again.
const (
	removableFrom, removableTo = 90, 85
	messagesFrom, messagesTo   = 95, 90
	receiptsFrom, receiptsTo   = 100, 98
)

// Reserve is what is left free of a file system of a size, in bytes, whatever the budget: manifests, the ledger and the log of the API
// are written also while nothing is received, and a NATS server that finds its disk full stores nothing until Tend of its server starts it again.
func Reserve(size int64) int64 { return min(size/10, 1<<30) }

// StreamBytes is how many bytes the streams of NATS on a file system of a size may declare together. It does not depend on what is free
// now: a full disk may have space later.
func StreamBytes(size int64) int64 { return size - Reserve(size) }

// Sizes are what Plan decides by, in bytes.
type Sizes struct {
	// Used by the data folder; 0 before it was measured.
	Used int64
	// Free is what the file system has left for the user of this process, Size what it can hold.
	Free, Size int64
	// Declared is the configured budget; 0: none.
	Declared int64
	// Removable are bytes of objects that the archivist may remove now: those that can be made again, and as many of those that partners have
	// as it has looked for; Unknown before it has looked.
	Removable int64
}

// Unknown is a number of bytes that is not known yet.
const Unknown = -1

// Budget is what the data folder may have: what is declared, as far as the disk has it without the reserve.
func (s Sizes) Budget() int64 {
	budget := s.Used + s.Free - Reserve(s.Size)
	if s.Declared > 0 {
		budget = min(budget, s.Declared)
	}
	return max(budget, 0)
}

// Decision says what is given up now.
type Decision struct {
	// Remove is how many bytes of objects are to go that can be made again, or that partners have; they go as days do, and so a little more.
	Remove int64
	// Messages: archived messages go before their retention is over.
	Messages bool
	// NoReceipts: nothing more is received.
	NoReceipts bool
}

// Full says whether so many percent of the budget are used.
func (s Sizes) Full(percent int64) bool { return s.Used >= s.Budget()/100*percent }

// Excess is how many bytes are to go until nothing is given up any more.
func (s Sizes) Excess() int64 { return s.Used - s.Budget()/100*removableTo }

// NearlyFull says whether something is given up now, or soon.
func (s Sizes) NearlyFull() bool { return s.Full(removableTo) }

// Plan says what is given up, where was is what was said before. While there is something left to remove, or it is unknown whether there
// is, messages stay; receipts end where the budget does, whatever may still go.
func Plan(s Sizes, before Decision) Decision {
	budget := s.Budget()
	begun := func(before bool, from, to int64) bool { return s.Full(from) || before && s.Full(to) }
	var d Decision
	if begun(before.Remove > 0, removableFrom, removableTo) && s.Removable > 0 {
		d.Remove = max(s.Excess(), 1)
	}
	d.Messages = begun(before.Messages, messagesFrom, messagesTo) && s.Removable == 0
	d.NoReceipts = budget == 0 || begun(before.NoReceipts, receiptsFrom, receiptsTo)
	return d
}
