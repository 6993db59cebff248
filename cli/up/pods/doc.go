// SPDX-License-Identifier: Apache-2.0

// Package pods runs the pods of the operator's StatefulSets and Deployments, and those of Jobs, as parts of this process. It is what controller
// manager and kubelet are on a cluster, for pods with one container of a program of ours: it mounts Secrets as files,
// starts the program with the arguments of its container, looks whether it is ready, starts it again when it ends, and
// writes what it sees into Pods and the workloads' status.
package pods
