// SPDX-License-Identifier: Apache-2.0

// Package natsdelivery works for consumers that read by NATS with credentials of
// their own. Those of mode All read the base streams themselves, through durables;
// here is watched that they miss nothing without being told (gap records). Those of
// modes Latest and Sample read a small stream of their own, which is filled here.
//
// Replicas share the consumers out by leases: one of them works for a consumer at a
// time, and another goes on where it stopped.
package natsdelivery
