// SPDX-License-Identifier: Apache-2.0

// Package workload plans the programs that a Site runs: their pods, Services, disruption budgets and service accounts, the Secrets that they
// read, and where these are mounted.
package workload
