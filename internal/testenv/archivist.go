// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"cmp"
	"fmt"
	"testing"
)

// ArchivistOptions say for which Site an archivist works.
type ArchivistOptions struct {
	// Site is the code; its streams, buckets (CreateSite) and registry (Bus.Declare) exist.
	Site   string
	NATS   *NATSServer
	MinIO  *MinIOServer
	Bucket string
	// Pod is its name; "" is "archivist-0".
	Pod string
	// NATSServer and S3Endpoint take the place of the servers' own URLs, for a Relay
	// between them and the archivist.
	NATSServer, S3Endpoint string
	// Flags are added to the command line, whose own they replace.
	Flags []string
}

// Archivist is a running archivist.
type Archivist struct {
	*Process
	http string
}

// StartArchivist builds the archivist of this checkout and starts it. It closes parts of
// manifests twice a second, and takes the Site's lease once it is free and the registry is there.
func StartArchivist(t testing.TB, o ArchivistOptions) *Archivist {
	t.Helper()
	dir := t.TempDir()
	a := &Archivist{http: fmt.Sprintf("127.0.0.1:%d", FreePort(t))}
	argv := []string{
		buildProgram(t, dir, "archivist"), "--site", o.Site, "--pod", cmp.Or(o.Pod, "archivist-0"), "--scratch-dir", t.TempDir(), "--listen-http", a.http,
		"--part-interval", "500ms",
		"--nats-servers", cmp.Or(o.NATSServer, o.NATS.URL()), "--s3-endpoint", cmp.Or(o.S3Endpoint, o.MinIO.URL()), "--s3-bucket", o.Bucket, "--s3-credentials-dir", CredentialsDir(t, o.MinIO.Root()),
	}
	if o.MinIO.CA != nil {
		argv = append(argv, "--s3-tls-dir", o.MinIO.CA.Dir(t, "archivist"))
	}
	a.Process = newProcess(t, "archivist", dir, append(append(argv, o.NATS.programFlags(t)...), o.Flags...), nil, func() error { return answers(a.http, "healthz") })
	a.Start()
	return a
}

// URL returns the address of a path of its /metrics and health.
func (a *Archivist) URL(path string) string { return "http://" + a.http + path }
