// SPDX-License-Identifier: Apache-2.0

package testenv

import (
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
	// Pod is its name.
	Pod string
	// Flags are added to the command line, whose own they replace.
	Flags []string
}

// Archivist is a running archivist.
type Archivist struct{ *Process }

// StartArchivist builds the archivist of this checkout and waits until it could take the
// Site's lease.
func StartArchivist(t testing.TB, o ArchivistOptions) *Archivist {
	t.Helper()
	dir := t.TempDir()
	http := fmt.Sprintf("127.0.0.1:%d", FreePort(t))
	argv := append([]string{
		buildProgram(t, dir, "archivist"), "--site", o.Site, "--pod", o.Pod, "--scratch-dir", t.TempDir(), "--listen-http", http,
		"--nats-servers", o.NATS.URL(), "--s3-endpoint", o.MinIO.URL(), "--s3-bucket", o.Bucket, "--s3-credentials-dir", o.MinIO.credentials(t, dir),
	}, append(o.NATS.programFlags(t), o.Flags...)...)
	a := &Archivist{newProcess(t, "archivist", dir, argv, nil, func() error { return ready(http) })}
	a.Start()
	return a
}
