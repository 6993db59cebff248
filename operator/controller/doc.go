// SPDX-License-Identifier: Apache-2.0

// Package controller does what package plan says: each controller reads, asks
// the planner, applies, and hands a status to the one writer of statuses. What
// lies outside the API server (object store, JetStream) is behind a Link for
// each Site, which works in the background: a backend that is away never keeps
// a reconciliation waiting.
//
// Start with setup.go. An Instrument passes through registry.go (its entry is in the
// registry milliseconds after the API server's answer), then instrument.go
// (its status).
package controller
