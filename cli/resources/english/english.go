// SPDX-License-Identifier: Apache-2.0

// Package english has kubectl's commands speak English, as all of Substorm does. When their packages are initialized, they would read their
// translations, which takes a third of the time that the program takes to start. This package is therefore initialized before them: it
// needs less than they do, and its path comes first (The Go Programming Language Specification, "Program initialization").
package english

import "k8s.io/kubectl/pkg/util/i18n"

func init() { _ = i18n.SetLoadTranslationsFunc(func() error { return nil }) }
