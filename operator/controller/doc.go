// SPDX-License-Identifier: Apache-2.0

// Package controller carries out what package plan says: each controller reads, asks the planner, applies, and passes a status to the one
// writer of statuses. A Link for each Site works in the background and covers the backends outside the API server (object store,
// JetStream), so a backend that is away never delays a reconciliation.
//
// Start with setup.go. An Instrument passes through registry.go (its entry is in the registry milliseconds after the API server's answer),
// then instrument.go (its status).
package controller
