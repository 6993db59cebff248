// SPDX-License-Identifier: Apache-2.0

// Package entries plans the registry: the entries from which a Site's programs learn of its Instruments, Feeds, consumers, mirrors and
// readers.
package entries
