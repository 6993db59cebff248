// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/internal/wire"
)

// TestUnexpectedContent sends a private key and a kubeconfig among frames to a camera of compressed frames, to the store and to the spool, byte
// by byte too: all are kept, and those two are marked and counted, whatever their sender says of them. The media type that the sender says
// stays.
func TestUnexpectedContent(t *testing.T) {
	t.Parallel()
	const (
		frame      = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
		key        = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE KEY-----\n"
		kubeconfig = "apiVersion: v1\nkind: Config\nclusters: []\n"
	)
	for _, acknowledge := range []string{"Stored", spooledOnly} {
		t.Run(acknowledge, func(t *testing.T) {
			t.Parallel()
			lab := newLab(t, enough)
			lab.claimNames(t)
			l := lab.start(t, t.TempDir(), "one", acknowledge)
			var err error
			l.camera, err = intake.NewInstrument(wire.InstrumentEntry{Instrument: "camera", MaxObjectSize: 1 << 20, MaxConnections: 1, MediaType: "application/gzip",
				Acknowledge: acknowledge, PackBelow: 1 << 10})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			send := func(name, mediaType, body, looks string, step int) {
				t.Helper()
				want[name] = looks
				o := l.Begin(l.camera, netip.MustParseAddrPort("192.0.2.7:4000"), func() {})
				o.Describe(name, mediaType)
				for at := 0; at < len(body); at += step {
					space, err := o.Space(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					o.Advance(space, copy(space, body[at:min(at+step, len(body))]))
				}
				if _, err := o.Keep(t.Context()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			for _, step := range []int{1, 1 << 10} {
				send(fmt.Sprint("frame-", step), "", frame, "", step)
				send(fmt.Sprint("key-", step), "", key+fmt.Sprint(step), "application/x-pem-file", step)
				send(fmt.Sprint("kubeconfig-", step), "application/octet-stream", kubeconfig+fmt.Sprint(step), "application/x-kubeconfig", step)
				send(fmt.Sprint("log-", step), "text/plain", fmt.Sprint("2026-11-29 a log", step), "text/plain", step)
			}
			await(t, "all are announced", func() (bool, string) { return int(l.announced(t)) == len(want), "" })
			for _, n := range l.noticesIn(t) {
				if strings.HasPrefix(n.Name, "log-") && n.MediaType != "text/plain" || strings.HasPrefix(n.Name, "kubeconfig-") && n.MediaType != "application/octet-stream" {
					t.Errorf("%s is recorded as %s, which is not what its sender says", n.Name, n.MediaType)
				}
				if n.Looks != want[n.Name] {
					t.Errorf("%s looks like %q, want %q", n.Name, n.Looks, want[n.Name])
				}
				if stored, err := l.lookUp(t.Context(), n); err != nil || stored.Looks != n.Looks {
					t.Errorf("%s: the metadata say %q: %v", n.Name, stored.Looks, err)
				}
			}
			if got := testutil.ToFloat64(l.Archive.metrics.unexpected.WithLabelValues("camera")); got != 6 {
				t.Errorf("%v objects are counted, want 6", got)
			}
		})
	}
}
