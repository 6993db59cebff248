// SPDX-License-Identifier: Apache-2.0

// Package kubeapi serves a small Kubernetes API from a folder: Substorm's kinds and the few built-in ones that its operator and kubectl
// need. Decoding, server-side apply, patches, watches, dry run, field validation and tables are k8s.io/apiserver's own handlers;
// defaults, pruning, validation and CEL are apiextensions-apiserver's. Only the storage below them is ours.
//
// There is one user, who may do everything; a client with the token of the kubeconfig is that user. There is no kubelet and no controller
// but a garbage collector: what a StatefulSet stands for is another package's.
package kubeapi
