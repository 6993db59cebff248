// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/sender"
)

// TestSendTLS: the instrument's side and a gateway recognize each other, and
// nothing is believed where they do not.
func TestSendTLS(t *testing.T) {
	minio, nats := testenv.SharedMinIO(t, testenv.MinIOOptions{}), testenv.NATS(t, testenv.NATSOptions{Domain: "hub"})
	bucket := testenv.BucketName()
	testenv.CreateSite(t, nats.JetStream(t), "hub")
	minio.Bucket(t, bucket)
	server, field, other := testenv.NewCA(t), testenv.NewCA(t), testenv.NewCA(t)
	camera, spectra := testenv.InstrumentTCP("camera", testenv.FreePort(t)), testenv.InstrumentTCP("spectra", testenv.FreePort(t))
	spectra.Listeners[0].Framing = wire.FramingLengthPrefixed
	for _, e := range []*wire.InstrumentEntry{&camera, &spectra} {
		e.Listeners[0].TLS, e.Listeners[0].CertificateNames = wire.TLSMutual, []string{"camera.field"}
	}
	testenv.StartGateway(t, testenv.GatewayOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: bucket,
		Instruments: []wire.InstrumentEntry{camera, spectra},
		Flags:       []string{"--tls-dir", server.Dir(t, "gateway"), "--client-ca-dir", field.Dir(t, "unused")}})
	testenv.StartArchivist(t, testenv.ArchivistOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: bucket})

	dir := t.TempDir()
	var files []string
	for i := range 12 {
		file := filepath.Join(dir, string(rune('a'+i))+".bin")
		if err := os.WriteFile(file, bytes.Repeat([]byte{byte(i)}, 1+i*70_000), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	as := func(ca *testenv.CA, by *testenv.CA, name string) []string {
		trusted, own := ca.Dir(t, "unused"), by.Dir(t, name)
		return []string{"--tls-ca", filepath.Join(trusted, "ca.crt"), "--tls-cert", filepath.Join(own, "tls.crt"), "--tls-key", filepath.Join(own, "tls.key")}
	}
	transmit := func(t *testing.T, port uint16, more ...string) (received int, results []sender.Result, stderr string, code int) {
		t.Helper()
		report := filepath.Join(t.TempDir(), "report")
		args := append([]string{"send", "--to", testenv.Loopback(int(port)), "--report", report, "--give-up-after", "0"}, more...)
		_, stderr, code = runProgram(t, "substorm", append(args, files...)...)
		results = receipts(t, report)
		for _, r := range results {
			if r.Outcome == sender.Received {
				received++
			}
		}
		return received, results, stderr, code
	}
	for name, more := range map[string][]string{"until-close": nil, "length-prefixed": {"--framing", "length-prefixed"}} {
		t.Run(name, func(t *testing.T) {
			port := camera.Listeners[0].Port
			if more != nil {
				port = spectra.Listeners[0].Port
			}
			n, results, stderr, code := transmit(t, port, append(as(server, field, "camera.field"), more...)...)
			if n != len(files) || code != 0 {
				t.Errorf("%d of %d received, exit code %d\n%+v\n%s", n, len(files), code, results, stderr)
			}
		})
	}
	for name, c := range map[string]struct {
		flags []string
		says  string
	}{
		"a server of another authority":      {as(other, field, "camera.field"), "certificate signed by unknown authority"},
		"a certificate of another name":      {as(server, field, "radar.field"), string(wire.CauseBadCertificate)},
		"a certificate of another authority": {as(server, other, "camera.field"), "certificate"},
		"no certificate":                     {as(server, field, "camera.field")[:2], "certificate"},
		"no TLS":                             {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n, results, stderr, code := transmit(t, camera.Listeners[0].Port, c.flags...)
			if n != 0 || code == 0 || !strings.Contains(stderr, c.says) {
				t.Errorf("%d received, exit code %d\n%+v\n%s", n, code, results, stderr)
			}
		})
	}
}
