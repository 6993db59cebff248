// SPDX-License-Identifier: Apache-2.0

// Package backend finds a Site's object store and JetStream, from flags and the
// environment or from the Site in a cluster and its Secrets, and opens them,
// through a forwarded port where the cluster's network is not ours.
package backend

import (
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/substorm/substorm/cli/kube"
)

// Options say where a Site's backends are. With Code they are named by flags
// (or the environment) alone; without it they are read from a Site in the
// cluster, and those that are set take the place of what the Site says.
type Options struct {
	kube.Flags
	// Site is the name of a Site in the cluster; empty if there is only one.
	Site string
	// Code of the Site, where no cluster is asked.
	Code string

	S3Endpoint, S3Bucket, S3Region string
	// S3CredentialsDir holds accessKeyID and secretAccessKey; S3TLSDir holds
	// ca.crt, or for a client certificate tls.crt and tls.key, or all three.
	S3CredentialsDir, S3TLSDir string

	NATSServers []string
	// NATSCredentials is a .creds file; NATSTLSDir is laid out as S3TLSDir.
	NATSCredentials, NATSTLSDir, NATSInboxPrefix string

	// ImportFor is the instrument for which objects are announced; empty for
	// commands that only read. It decides what credentials of JetStream may do
	// that are issued from an account's key.
	ImportFor string
	// ChangesOf is the instrument whose objects are retracted, restored or purged; empty for all other commands. It decides as ImportFor
	// does.
	ChangesOf string
	// AbandonPod is the gateway pod whose spool is given up; empty for all other
	// commands. It decides as ImportFor does.
	AbandonPod string
	// Rebuild: manifests are rebuilt, and the index is marked as incomplete. It decides as ImportFor does.
	Rebuild bool

	// TLSServerName is the name in the servers' certificates, where it is not
	// the one that is connected to.
	TLSServerName string
}

// AddFlags adds the flags. Each has its default in SUBSTORM_<FLAG>.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	o.Add(flags)
	flags.StringVar(&o.Site, "site", "", "name of the Site in the cluster (default: the only one in the namespace)")
	text := func(p *string, name, usage string) {
		flags.StringVar(p, name, os.Getenv(variable(name)), usage+" [$"+variable(name)+"]")
	}
	text(&o.Code, "code", "code of the Site: asks no cluster, everything else comes from the flags below")
	text(&o.S3Endpoint, "s3-endpoint", "URL of the object store")
	text(&o.S3Bucket, "s3-bucket", "bucket of the archive")
	text(&o.S3Region, "s3-region", "region of the bucket")
	text(&o.S3CredentialsDir, "s3-credentials-dir", "folder with accessKeyID and secretAccessKey")
	text(&o.S3TLSDir, "s3-tls-dir", "folder with ca.crt, or tls.crt and tls.key, or all three, for the object store")
	var servers []string
	if env := os.Getenv(variable("nats-servers")); env != "" {
		servers = strings.Split(env, ",")
	}
	flags.StringSliceVar(&o.NATSServers, "nats-servers", servers, "URLs of the NATS servers [$"+variable("nats-servers")+"]")
	text(&o.NATSCredentials, "nats-credentials", "file with the credentials of a NATS user (user.creds)")
	text(&o.NATSTLSDir, "nats-tls-dir", "folder with ca.crt, or tls.crt and tls.key, or all three, for NATS")
	text(&o.NATSInboxPrefix, "nats-inbox-prefix", "prefix of reply subjects that the credentials allow")
	text(&o.TLSServerName, "tls-server-name", "name in the servers' certificates, where it is not the one connected to")
}

func variable(flag string) string {
	return "SUBSTORM_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
