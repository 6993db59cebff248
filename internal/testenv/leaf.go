// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// LeafLink is a link from a leaf's NATS server to the hub's.
type LeafLink struct {
	// Address of the hub's port for leaf links (NATSServer.LeafAddress), or of a
	// Relay that leads there.
	Address string
	// CA that signed the hub's certificate; nil where it has none.
	CA *CA
	// Creds is the file of a user of the hub's.
	Creds string
	// DenyImports and DenyExports are subjects that the leaf itself lets neither in
	// nor out, whatever the hub allows.
	DenyImports, DenyExports []string
}

// leafnodes returns the part of the configuration about leaf links.
func (n *NATSServer) leafnodes(t testing.TB, certs string) string {
	t.Helper()
	var config strings.Builder
	if n.opts.TakesLeaves {
		n.leafPort = FreePort(t)
		// Without no_advertise leaves would learn of the server's own address, past a Relay.
		fmt.Fprintf(&config, "  listen: \"127.0.0.1:%d\"\n  no_advertise: true\n", n.leafPort)
		if certs != "" {
			fmt.Fprintf(&config, "  tls {\n    cert_file: %q\n    key_file: %q\n  }\n", filepath.Join(certs, "tls.crt"), filepath.Join(certs, "tls.key"))
		}
	}
	if link := n.opts.LeafOf; link != nil {
		scheme, tls := "nats-leaf", ""
		if link.CA != nil {
			ca := filepath.Join(t.TempDir(), "hub-ca.crt")
			write(t, ca, link.CA.PEM)
			scheme, tls = "tls", fmt.Sprintf("    tls {\n      ca_file: %q\n    }\n", ca)
		}
		fmt.Fprintf(&config, "  reconnect: \"1s\"\n  remotes: [{\n    url: %q\n%s", scheme+"://"+link.Address, tls)
		if link.Creds != "" {
			fmt.Fprintf(&config, "    credentials: %q\n", link.Creds)
		}
		if n.AccountID != "" {
			fmt.Fprintf(&config, "    account: %q\n", n.AccountID)
		}
		fmt.Fprintf(&config, "    deny_imports: [%s]\n    deny_exports: [%s]\n  }]\n", quoted(link.DenyImports), quoted(link.DenyExports))
	}
	if config.Len() == 0 {
		return ""
	}
	return "leafnodes {\n" + config.String() + "}\n"
}

func quoted(subjects []string) string {
	all := make([]string, len(subjects))
	for i, s := range subjects {
		all[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(all, ", ")
}

// LeafAddress is where leaves link to (NATSOptions.TakesLeaves).
func (n *NATSServer) LeafAddress() string { return Loopback(n.leafPort) }
