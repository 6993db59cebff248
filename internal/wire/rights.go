// SPDX-License-Identifier: Apache-2.0

package wire

import "strings"

// RightsEntry says under what terms an instrument's data may be used, and how to name
// whose it is. Each member may be empty.
type RightsEntry struct {
	// License is an identifier of the SPDX License List, as CC-BY-4.0, or one that
	// begins with LicenseRef-, which only its owner explains.
	License string `json:"license,omitempty"`
	// DOI names the data set, as 10.5281/zenodo.123.
	DOI string `json:"doi,omitempty"`
	// Citation is what to write where the data was used, Credit what to show beside it.
	Citation string `json:"citation,omitempty"`
	Credit   string `json:"credit,omitempty"`
}

// LicenseURL is the page that explains the license; empty if there is none.
func (r *RightsEntry) LicenseURL() string {
	if r == nil || r.License == "" || strings.HasPrefix(r.License, "LicenseRef-") {
		return ""
	}
	return "https://spdx.org/licenses/" + r.License + ".html"
}

// CiteURL is what the DOI resolves through; empty if there is none.
func (r *RightsEntry) CiteURL() string {
	if r == nil || r.DOI == "" {
		return ""
	}
	return "https://doi.org/" + r.DOI
}
