// SPDX-License-Identifier: Apache-2.0

// Package simulate compares policies that scale a pool, in virtual time: those that Kubernetes users have, and the operator's, which runs
// with the code that the operator runs (packages surge and autoscale).
//
// # The model
//
// The pool is one of feed servers. Work is counted in pods: a load of 3 fills three of them. A requested pod is ready after a while, and
// carries 1; load beyond the capacity of the ready pods is refused, at once and for good: there are no retries and no queue. A pod that is
// removed is gone at once. Time goes in steps of a second while a crowd grows, and for ten minutes after; else in steps of 15 seconds, as
// the load changes only each minute.
//
// The load of a calm day is a sine over the day with noise, and crowds multiply it: each grows to its factor, stays, and goes.
//
// # Sources of the numbers
//
//   - The storm's factor of 2 to 8: in March 2015 the archive of the Aurora study had four times the requests and bytes, and eight times
//     the addresses (Liu, Picard, Williamson, 2017). It says "within hours" of the crowd's growth; that it grows within 1 to 60 minutes
//     here (evenly in the logarithm) is an assumption: short ones are hard for every policy, long ones for none.
//   - Half and 1.5 times the mean by night and by day, 5 % of noise from minute to minute, a crowd that stays for 2 to 8 hours and goes in
//     as many: assumptions.
//   - A pod is ready 10 to 30 seconds after it was requested: an assumption. It is to be scheduled, its image is on the node, it reads the
//     registry, and its readiness probe runs every 2 seconds.
//   - HorizontalPodAutoscaler: a sync each 15 seconds, tolerance 0.1, five minutes of downscale stabilization, doubling or four pods more
//     each 15 seconds, all as its documentation says. It reads the values that metrics-server read in the last 15 seconds, of a kubelet
//     that looks each 10 seconds. With these three it begins to react to a load that quadruples within a second after 28 seconds on
//     average, and 42 at worst (TestHPAReacts); on a cluster, 27 and 55 were measured.
//   - KEDA: its documentation's 30 seconds of polling, with cached metrics. Its cooldown of 300 seconds is for scaling to none, which a
//     pool with a least number of pods never does; above that, HorizontalPodAutoscaler scales by the polled values. It sees the requested
//     load, not only the carried load.
//   - Knative: the loop of package autoscale as Knative configures it, a decision each 2 seconds.
//   - Pods are to be 70 % full, which is Knative's default, for all policies alike: they differ in when, not in how much.
//   - The oracle knows the load, and has each pod ready in the moment in which it is needed, at the same 70 %.
package simulate
