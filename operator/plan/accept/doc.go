// SPDX-License-Identifier: Apache-2.0

// Package accept decides which Instruments, Feeds, FeedConsumers and MirrorPartners of a Site are accepted, what each selects, who may read it and
// by which identity. Each is judged by a chain of checks: the first that finds something decides.
package accept
