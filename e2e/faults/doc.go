// SPDX-License-Identifier: Apache-2.0

// Package faults runs two pools and two archivists of one Site under load while, round by round,
// one fault is injected: a gateway, an archivist, the object store or NATS is killed, stopped or cut off,
// or a key-value bucket is deleted. At the end the archive is compared with the
// senders' own list, with what was ever in the stream of observations, and with the ledger.
package faults
