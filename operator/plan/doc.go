// SPDX-License-Identifier: Apache-2.0

// Package plan says what the operator wants: custom resources, what was seen
// of the world and the time go in; Kubernetes objects, registry entries,
// streams, users and conditions come out. Nothing here does I/O, and what goes
// in is never changed.
//
// Each planned object has a file. Conditions are chains of small functions,
// each named for what it finds; the first that finds something decides, so
// the order of a chain is its documentation (acceptance.go, instrument.go,
// gateway.go, site.go).
package plan
