// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
)

// ObjectStore adds the flags that say where the object store is. Endpoint and bucket say
// what these two are for.
func ObjectStore(f *pflag.FlagSet, cfg *objectstore.Config, endpoint, bucket string) {
	f.StringVar(&cfg.Endpoint, "s3-endpoint", "", endpoint)
	f.StringVar(&cfg.Bucket, "s3-bucket", "", bucket)
	f.StringVar(&cfg.Region, "s3-region", "us-east-1", "region of the bucket")
	f.StringVar(&cfg.CredentialsDir, "s3-credentials-dir", "/etc/substorm/s3", "folder with accessKeyID and secretAccessKey")
	f.StringVar(&cfg.TLSDir, "s3-tls-dir", "", "folder with ca.crt, or tls.crt and tls.key, or all three, for the object store")
}

// NATS adds the flags that say where the NATS servers are, and as whom to connect.
func NATS(f *pflag.FlagSet, cfg *stream.Config) {
	f.StringSliceVar(&cfg.Servers, "nats-servers", nil, "URLs of the NATS servers")
	f.StringVar(&cfg.CredentialsFile, "nats-credentials", "", "file with the credentials of a NATS user (user.creds)")
	f.StringVar(&cfg.TLSDir, "nats-tls-dir", "", "folder with ca.crt, or tls.crt and tls.key, or all three, for NATS")
	f.StringVar(&cfg.InboxPrefix, "nats-inbox-prefix", "", "prefix of reply subjects that the credentials allow")
}

// CIDRs is a flag of networks, separated by commas.
func CIDRs(f *pflag.FlagSet, to *[]netip.Prefix, name, usage string) { f.Var(cidrs{to}, name, usage) }

type cidrs struct{ to *[]netip.Prefix }

func (c cidrs) String() string {
	if c.to == nil {
		return ""
	}
	all := make([]string, len(*c.to))
	for i, prefix := range *c.to {
		all[i] = prefix.String()
	}
	return strings.Join(all, ",")
}

func (c cidrs) Set(s string) error {
	for text := range strings.SplitSeq(s, ",") {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("%q is not a CIDR such as 192.0.2.7/32", text)
		}
		*c.to = append(*c.to, prefix.Masked())
	}
	return nil
}

func (c cidrs) Type() string { return "cidrs" }
