// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/internal/usage"
)

// httpFlags are the flags of HTTPConfig.
type httpFlags struct{ config HTTPConfig }

func (h *httpFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&h.config.NameFrom, "name-from", NameFromPath, "over HTTP, what names an object: path, below the folder that is sent or watched; base, the file's own name; none")
	usage.OneOf(cmd, "name-from", NameFromPath, NameFromBase, NameFromNothing)
	f.StringVar(&h.config.TokenFile, "token-file", "", "over HTTPS, file with the bearer token of the Instrument; it is read for each request")
}

// parse reads --to and what belongs to it. Without URLs it is for TCP or UDP.
func (h *httpFlags) parse(cmd *cobra.Command, to []string, cfg *Config) (err error) {
	if !isURL(to) {
		for _, name := range []string{"name-from", "token-file"} {
			if cmd.Flags().Changed(name) {
				return usage.Errorf("--%s is for HTTP: --to http://host:port/in/INSTRUMENT/", name)
			}
		}
		cfg.Addresses, err = ParseAddresses(to)
		return err
	}
	c := h.config
	if cfg.Addresses, c.Prefix, err = parseURLs(to); err != nil {
		return err
	}
	secured := cfg.Addresses[0][:5] == "https"
	switch {
	case cfg.UDP:
		return usage.Errorf("--udp takes host:port, not a URL")
	case cmd.Flags().Changed("framing"):
		return usage.Errorf("--framing is for TCP: HTTP has its own")
	case c.NameFrom != NameFromPath && c.NameFrom != NameFromBase && c.NameFrom != NameFromNothing:
		return usage.Errorf("--name-from %q is neither path, base nor none", c.NameFrom)
	case !secured && (cfg.TLS != nil || c.TokenFile != ""):
		return usage.Errorf("TLS and tokens need https:// in --to: over http:// anyone could read them")
	case secured && cfg.TLS == nil:
		cfg.TLS = (&tlsFlags{}).read
	}
	if c.TokenFile != "" {
		if _, err := readToken(c.TokenFile); err != nil {
			return err
		}
	}
	if cfg.Lines {
		c.NameFrom = NameFromNothing
	}
	cfg.HTTP = &c
	return nil
}
