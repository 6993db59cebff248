// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"cmp"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"testing"

	"github.com/substorm/substorm/internal/minioadmin"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// GatewayOptions say what a gateway receives for.
type GatewayOptions struct {
	// Site is the code; its streams and buckets exist (CreateSite).
	Site   string
	NATS   *NATSServer
	MinIO  *MinIOServer
	Bucket string
	// Pool of the gateway; "" is "north".
	Pool string
	// Instruments of the registry. Gateway, Format and Revision are filled in. Without
	// any the registry stays as it is.
	Instruments []wire.InstrumentEntry
	// NATSServer and S3Endpoint take the place of the servers' own URLs, for a Relay
	// between them and the gateway.
	NATSServer, S3Endpoint string
	// Flags are added to the command line, whose own they replace.
	Flags []string
}

// Gateway is a running ingest-gateway with a volume of its own.
type Gateway struct {
	*Process
	http string
}

// StartGateway builds the gateway of this checkout, gives it the rights of gateways in the bucket, writes the Site's registry
// and waits until the gateway runs it. It receives on the ports of the
// instruments' listeners on 127.0.0.1.
func StartGateway(t testing.TB, o GatewayOptions) *Gateway {
	t.Helper()
	pool := cmp.Or(o.Pool, "north")
	if len(o.Instruments) > 0 {
		entries := slices.Clone(o.Instruments)
		for i := range entries {
			entries[i].Gateway, entries[i].Revision = pool, 1
		}
		o.NATS.Declare(t, o.Site, Registry{Revision: 1, Instruments: entries})
	}
	dir := t.TempDir()
	g := &Gateway{http: fmt.Sprintf("127.0.0.1:%d", FreePort(t))}
	argv := []string{
		buildProgram(t, dir, "ingest-gateway"), "--site", o.Site, "--pool", pool, "--gateway", pool + "-0", "--data-dir", filepath.Join(dir, "data"),
		"--listen-http", g.http, "--ports", "10000-30000",
		"--nats-servers", cmp.Or(o.NATSServer, o.NATS.URL()), "--s3-endpoint", cmp.Or(o.S3Endpoint, o.MinIO.URL()), "--s3-bucket", o.Bucket,
		"--s3-credentials-dir", CredentialsDir(t, o.MinIO.GatewayUser(t, o.Bucket)),
	}
	argv = append(append(argv, o.NATS.programFlags(t)...), o.Flags...)
	g.Process = newProcess(t, "ingest-gateway", dir, argv, nil, g.answers)
	g.Start()
	return g
}

// CredentialsDir writes the credentials of a user as programs read them, and returns the folder.
func CredentialsDir(t testing.TB, user minioadmin.User) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, objectstore.FileAccessKeyID), []byte(user.AccessKeyID))
	write(t, filepath.Join(dir, objectstore.FileSecretAccessKey), []byte(user.SecretAccessKey))
	return dir
}

// programFlags are what a program needs to be let in.
func (n *NATSServer) programFlags(t testing.TB) []string {
	var flags []string
	if n.creds != "" {
		flags = append(flags, "--nats-credentials", n.creds)
	}
	if n.CA != nil {
		flags = append(flags, "--nats-tls-dir", n.CA.Dir(t, "program"))
	}
	return flags
}

func (g *Gateway) answers() error { return ready(g.http) }

// Metrics is the URL of its metrics.
func (g *Gateway) Metrics() string { return "http://" + g.http + "/metrics" }

// InstrumentTCP is an entry for objects on a port.
func InstrumentTCP(name string, port int) wire.InstrumentEntry {
	e := instrument(name)
	e.Listeners = []wire.ListenerEntry{{Name: "frames", Protocol: wire.ProtocolTCP, Port: uint16(port), Framing: wire.FramingUntilClose, Receipt: wire.ReceiptLine,
		IdleTimeoutMillis: 60_000, MaxAgeMillis: 3_600_000}}
	return e
}

// InstrumentUDP is an entry for datagrams on a port; segments are cut each second.
func InstrumentUDP(name string, port int) wire.InstrumentEntry {
	e := instrument(name)
	e.Listeners = []wire.ListenerEntry{{Name: "telemetry", Protocol: wire.ProtocolUDP, Port: uint16(port), Channel: "raw"}}
	e.SegmentAgeMillis = 1000
	return e
}

func instrument(name string) wire.InstrumentEntry {
	return wire.InstrumentEntry{
		UID: "uid-" + name, Generation: 1, Instrument: name, MaxObjectSize: 1 << 30, MaxConnections: 1024, Acknowledge: "Stored",
		MediaType: "application/octet-stream", CadenceMillis: 60_000, RepeatWindowMillis: 720 * 3_600_000,
		SegmentAgeMillis: 600_000, SegmentSize: 64 << 20, PackBelow: 64 << 10,
	}
}

// Loopback is the address of a port on 127.0.0.1.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", fmt.Sprint(port)) }
