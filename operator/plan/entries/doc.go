// SPDX-License-Identifier: Apache-2.0

// Package entries plans the registry: what a Site's programs are told of its Instruments, Feeds, consumers, mirrors and readers.
package entries
