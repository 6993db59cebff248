// SPDX-License-Identifier: Apache-2.0

// Package natsdelivery serves consumers that read by NATS with credentials of their own. Consumers
// of mode All read the base streams themselves, through durables; this package watches them and
// reports each loss to them (gap records). Consumers of modes Latest and Sample read a small stream
// of their own, which this package fills.
//
// Replicas share the consumers out by leases: one of them serves a consumer at a time, and another
// resumes where it stopped.
package natsdelivery
