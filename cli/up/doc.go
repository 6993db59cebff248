// SPDX-License-Identifier: Apache-2.0

// Package up is `substorm up`: a whole Site in one process, from the manifests that a cluster would get. It runs the operator and
// the programs unchanged, beside what they find on a cluster: an API server (kubeapi), a NATS server (natsserver), an object store on
// a folder (internal/objectstore), and something that runs pods (pods). Movers run in child processes (child): they read what others
// serve.
package up
