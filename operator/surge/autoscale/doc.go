// SPDX-License-Identifier: Apache-2.0

// Package autoscale decides how many pods a pool should have.
//
//	reports of pods ─► Sum ─► Load, each second ─► Loop ─► asked ─┐
//	                                       floor, ceiling, held ─┴─► Replicas
//
// The loop follows the documented behavior of Knative's autoscaler: it averages the load over a stable window of a minute, and over a panic
// window of six seconds, which takes over while it asks for twice the pods that there are; while it does, no pod is removed. It differs in
// these things:
//
//   - The panic window also takes over once pods are nearly full, and uses the load that three seconds in a row have in common if that is
//     more than its average.
//   - The stable window asks for more pods only if those that it asked for are a tenth fuller than they should be, and have been for a
//     minute. A minute that is fuller by chance is over before a pod that it asked for would be ready. Growth that cannot wait for so long
//     fills the pods, and is left to the panic window.
//   - A load that is not known in full removes no pod.
//   - Pods are removed only if the load was lower for five minutes (Knative's scale-down-delay, whose default is 0).
//   - Pods that a floor started do not make the loop ask later than it would without them.
//
// All of it is pure and takes the time as an input. The loop is kept in memory: a restarted operator does not know the last minutes, and so
// removes no pod in its first five.
package autoscale
