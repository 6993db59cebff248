// SPDX-License-Identifier: Apache-2.0

// Package sender is the instrument's side: it sends objects over TCP and trusts only a receipt line
// with its own digest and size, and it sends datagrams over UDP, which has no receipt.
//
// An object passes input → deliver (which address, how often) → attempt (one connection) → report.
// It uses nothing that Linux, Windows and small ARM boards do not all have.
package sender
