// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
)

// Why a client is refused.
const (
	refusedProtocol = "Protocol"
	refusedRequest  = "Request"
	refusedStart    = "NotReady"
	refusedLimited  = "Limited"
	refusedFull     = "Full"
	refusedMemory   = "Memory"
)

// How a connection ends.
const (
	endedWhole     = "Whole"
	endedSlow      = "Slow"
	endedGone      = "Gone"
	endedMalformed = "Malformed"
	endedStopped   = "Stopped"
	endedFailed    = "Failed"
)

type metrics struct {
	refused, ended, cut                                                          *prometheus.CounterVec
	transfers, files, bytes, matched, summed, overBudget, over, damaged, unnamed prometheus.Counter
	open, limit                                                                  prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	return &metrics{
		refused: metric.Counters(reg, "substorm_rsync_refused_total",
			"Clients that were told why they get nothing, or no more, by reason: Protocol, Request, NotReady, Limited, Full, Memory.", "reason"),
		ended: metric.Counters(reg, "substorm_rsync_connections_total",
			"Connections that ended, by how: Whole, Slow (the client was cut off because it took too long), Gone, Malformed, Stopped, Failed.", "result"),
		cut: metric.Counters(reg, "substorm_rsync_cut_off_total",
			"Clients that were cut off because they took too long, by cause: Start (they did not say what they want), Memory (options and filters of others take it), "+
				"Names (of --files-from), Requests, Takes (they took too little), Silent, Stalled.", "cause"),
		transfers:  metric.Counter(reg, "substorm_rsync_transfers_total", "Transfers that began."),
		files:      metric.Counter(reg, "substorm_rsync_files_total", "Files that were sent, in part or all of them."),
		bytes:      metric.Counter(reg, "substorm_rsync_bytes_total", "Bytes that were sent to clients, lists and what the protocol needs included."),
		matched:    metric.Counter(reg, "substorm_rsync_matched_bytes_total", "Bytes of files that clients had and that were not sent."),
		overBudget: metric.Counter(reg, "substorm_rsync_sums_over_budget_total", "Transfers that ended because what is read for checksums for their address was used up."),
		summed:     metric.Counter(reg, "substorm_rsync_summed_bytes_total", "Bytes that were read because clients asked for checksums of all files."),
		over:       metric.Counter(reg, "substorm_rsync_over_total", "How often an instrument became closed while it was sent."),
		damaged:    metric.Counter(reg, "substorm_rsync_damaged_total", "Files that were not sent because their bytes in the store are not those that were received, or are gone."),
		unnamed:    metric.Counter(reg, "substorm_rsync_unnamed_total", "Objects that were left out of a list because no file can have their name, or a folder has it."),
		open:       metric.Gauge(reg, "substorm_rsync_transfers", "Transfers under way."),
		limit:      metric.Gauge(reg, "substorm_rsync_transfers_limit", "How many transfers there may be at a time."),
	}
}
