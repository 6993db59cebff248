// SPDX-License-Identifier: Apache-2.0

package natsaccounts

// Link is what it takes to link a NATS server, as a leaf, to the server of a hub.
type Link struct {
	// URL is tls://host:port, of the hub's port for leaves.
	URL string
	// Account is the public key of the account here that is linked.
	Account string
	// Credentials are those of a user of the hub's, in the format of a .creds file.
	Credentials []byte
	// CA are the authorities that sign the hub's certificate, in PEM; nil for the public ones. Certificate and PrivateKey are
	// what is shown to a hub that asks for it; nil for nothing.
	CA, Certificate, PrivateKey []byte
}

// LinkState is what a NATS server says of its link to a hub.
type LinkState struct {
	Linked bool `json:"linked,omitempty"`
	// Unusable is what of a Link cannot be used, so that nothing was tried.
	Unusable string `json:"unusable,omitempty"`
	// Problem is why the last try failed, as the server says it; "" if none failed yet.
	Problem string `json:"problem,omitempty"`
}
