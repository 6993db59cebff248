// SPDX-License-Identifier: Apache-2.0

// Package plan says what the operator wants: custom resources, what was observed of the world and the time go in; Kubernetes objects, registry
// entries, streams, users and conditions come out. Nothing here or below does I/O, and what goes in is never changed.
//
// The packages below, each of which imports only those before it: finding (what a check finds, and conditions) and observed (what programs report),
// workload (pods of programs), accept (what is accepted, and why not), bus (streams and users), entries (the registry). This package makes the
// status of each kind, and the numbers of pods.
//
// Each planned object has a file. Conditions are chains of small functions, each named for what it finds; the first that finds something decides, so
// the order of a chain is its documentation (accept/acceptance.go, instrument.go, gateway.go, site.go).
package plan
