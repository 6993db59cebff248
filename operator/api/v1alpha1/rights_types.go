// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Rights say under what terms an instrument's data may be used, and how to name whose
// it is. Pages, listings and the headers of what is fetched show them.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:object:generate=false
type Rights struct {
	// License is an identifier of the SPDX License List, as CC-BY-4.0, or one that
	// begins with LicenseRef-, which only its owner explains.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9.+-]*$`
	// +optional
	License string `json:"license,omitempty"`

	// DOI names the data set, as 10.5281/zenodo.123, without https://doi.org/.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:Pattern=`^10\.[0-9]{4,9}/[-._;()/:A-Za-z0-9]+$`
	// +optional
	DOI string `json:"doi,omitempty"`

	// Citation is what to write where the data was used.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1000
	// +optional
	Citation string `json:"citation,omitempty"`

	// Credit is what to show beside the data, as beside an image.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=300
	// +optional
	Credit string `json:"credit,omitempty"`
}
