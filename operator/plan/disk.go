// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// diskEvery is how often the disk budget is looked at: nothing wakes the Site when it changes.
const diskEvery = 10 * time.Second

// Disk is how much of its computer's disk a Site that runs in one process uses, in bytes, and what is given up for it.
type Disk struct {
	// Measured: the data folder was; before that only the budget's end is known.
	Measured bool `json:"measured"`

	Budget       int64 `json:"budget"`
	Used         int64 `json:"used"`
	Objects      int64 `json:"objects"`
	Streams      int64 `json:"streams"`
	Reproducible int64 `json:"reproducible"`

	// Removes: objects expire that can be made again, or that partners have. Messages: archived messages are removed before their retention
	// is over. NoReceipts: nothing is received.
	Removes    bool `json:"removes"`
	Messages   bool `json:"messages"`
	NoReceipts bool `json:"noReceipts"`

	// Unwritten is why the embedded NATS server stores nothing; empty if it does.
	Unwritten string `json:"unwritten,omitempty"`
}

// disk returns how much of the disk the Site uses; nil if it was not measured.
func (v SiteView) disk() *v1alpha1.DiskState {
	d := v.Disk
	if d == nil || !d.Measured {
		return nil
	}
	step := int64(1)
	for d.Budget/step >= 1000 { // a status is not written for each object
		step *= 10
	}
	rounded := func(bytes int64) int64 { return bytes / step * step }
	return &v1alpha1.DiskState{BudgetBytes: rounded(d.Budget), UsedBytes: rounded(d.Used), ObjectBytes: rounded(d.Objects), StreamBytes: rounded(d.Streams),
		ReproducibleBytes: rounded(d.Reproducible)}
}

// spaceLeft returns whether the disk budget lasts; false if there is no budget.
func (v SiteView) spaceLeft() (finding.Finding, bool) {
	d := v.Disk
	if d == nil {
		return finding.Finding{}, false
	}
	const todo = "raise --disk-budget of substorm up, move the data folder to a larger disk, or have less kept (spec.archive.expiry of Instruments)"
	bytes := func(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
	used := fmt.Sprintf("%s of %s of the disk budget are used, by objects %s, of which %s can be made again, and by streams %s",
		bytes(d.Used), bytes(d.Budget), bytes(d.Objects), bytes(d.Reproducible), bytes(d.Streams))
	switch {
	case d.Unwritten != "":
		return finding.Bad(v1alpha1.ReasonStreamsStopped, fmt.Sprintf(
			"nothing is announced, and reports of pods do not arrive: %s. The server is started again once the disk has 16 MiB free: free space on the disk of the data folder", d.Unwritten)), true
	case d.NoReceipts && !d.Measured:
		return finding.Bad(v1alpha1.ReasonBudgetUsedUp, "nothing is received: the disk has nothing left but its reserve; "+todo), true
	case d.NoReceipts:
		return finding.Bad(v1alpha1.ReasonBudgetUsedUp, fmt.Sprintf("nothing is received: %s; %s", used, todo)), true
	case !d.Measured:
		return finding.Unknown(v1alpha1.ReasonReconciling, "the data folder is being measured"), true
	case d.Messages:
		return finding.Bad(v1alpha1.ReasonNearlyFull, fmt.Sprintf("archived messages go before their retention is over: %s; %s", used, todo)), true
	case d.Removes:
		return finding.Bad(v1alpha1.ReasonNearlyFull, fmt.Sprintf("what can be made again, or partners have, expires, the oldest days first: %s; %s", used, todo)), true
	}
	return finding.Good(v1alpha1.ReasonWithinBudget, used), true
}
