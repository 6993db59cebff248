// SPDX-License-Identifier: Apache-2.0

// Package crds holds Substorm's CustomResourceDefinitions, generated from
// operator/api by `make generate`.
package crds

import "embed"

// Files are the definitions, one per kind, as YAML.
//
//go:embed *.yaml
var Files embed.FS
