// SPDX-License-Identifier: Apache-2.0

// Package plan decides what the operator wants: custom resources, observations and the time go in; Kubernetes objects, registry entries,
// streams, users and conditions come out. Nothing here or below does I/O, and inputs are never changed.
//
// The packages below import only those before them in this list: finding (findings of checks, and conditions) and observed (reports of
// programs), workload (pods of programs), accept (what is accepted, and why not), bus (streams and users), entries (the registry),
// instrument and feeds (the statuses of Instruments, Feeds and FeedConsumers). This package makes the status of the other kinds, and the
// numbers of pods.
//
// Each planned object has a file. Conditions are chains of small functions, each named for its finding; the first that finds something
// decides, so the order of a chain is its documentation (accept/acceptance.go, instrument/instrument.go, gateway.go, site.go).
package plan
