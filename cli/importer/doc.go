// SPDX-License-Identifier: Apache-2.0

// Package importer is `substorm import`: it registers trees that exist already in
// a Site's archive. What was registered is known from the manifests alone, so a
// run can be killed at any point and go on from another machine.
package importer
