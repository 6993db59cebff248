// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/bus"
)

// TestUsers: what the operator allows a gateway and an archivist is enough for all that they do,
// through a restart. NATS tells them what they may not, and they their logs.
func TestUsers(t *testing.T) {
	nats, minio := testenv.NATS(t, testenv.NATSOptions{Operator: true}), testenv.SharedMinIO(t, testenv.MinIOOptions{})
	bucket := testenv.BucketName()
	js := nats.JetStream(t)
	testenv.CreateSite(t, js, "hub")
	store := minio.Bucket(t, bucket)
	site := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "field", Name: "hub"}, Spec: v1alpha1.SiteSpec{Code: "hub"}}
	as := func(user bus.JetStreamUser) []string {
		var may jwt.Permissions
		may.Pub.Allow.Add(user.Publish...)
		may.Sub.Allow.Add(user.Subscribe...)
		return []string{"--nats-credentials", nats.UserCreds(t, may), "--nats-inbox-prefix", user.InboxPrefix}
	}

	mag, spectra := testenv.InstrumentUDP("mag", testenv.FreePort(t)), testenv.InstrumentTCP("spectra", testenv.FreePort(t))
	spectra.Listeners = []wire.ListenerEntry{{Protocol: wire.ProtocolHTTP, Port: spectra.Listeners[0].Port, IdleTimeoutMillis: 60_000, MaxAgeMillis: 60_000, UploadExpiryMillis: 60_000}}
	g := testenv.StartGateway(t, testenv.GatewayOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: bucket, Instruments: []wire.InstrumentEntry{mag, spectra},
		Flags: as(bus.GatewayUser(site, "north"))})
	a := testenv.StartArchivist(t, testenv.ArchivistOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: bucket, Flags: as(bus.ArchivistUser(site))})
	registry, err := js.KeyValue(t.Context(), wire.RegistryBucket("hub"))
	if err != nil {
		t.Fatal(err)
	}
	entry, err := wire.Encode(wire.GuestEntry{Origin: "arctic", Instrument: "cam", Partner: "arctic"})
	if err != nil {
		t.Fatal(err)
	}
	guest := wire.RegistryGuestKey("arctic", "cam")
	if _, err := registry.Put(t.Context(), guest, entry); err != nil {
		t.Fatal(err)
	}
	for incarnation := range 2 {
		datagrams, err := net.Dial("udp", testenv.Loopback(int(mag.Listeners[0].Port)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := datagrams.Write([]byte("1,2,3")); err != nil {
			t.Fatal(err)
		}
		datagrams.Close()
		spectraURL := fmt.Sprintf("http://%s/in/spectra/", testenv.Loopback(int(spectra.Listeners[0].Port)))
		sendSpectrum(t, http.MethodPut, fmt.Sprint(spectraURL, incarnation, ".csv"), fmt.Sprint("spectrum ", incarnation))
		for range 2 { // without a name, so that only the archivist sees that it is the same
			sendSpectrum(t, http.MethodPost, spectraURL, fmt.Sprint("twice in incarnation ", incarnation))
		}
		for what, holds := range map[string]func() bool{
			"two manifests' parts each incarnation": func() bool { return count(t, store, "manifest/hub/") >= 2*(incarnation+1) },
			"a description of each":                 func() bool { return count(t, store, "descriptions/hub/") == 2 },
			"a copy of the guest's entry":           func() bool { return count(t, store, "guests/hub/") == 1 },
			"the guest's entry":                     func() bool { return has(t, js, wire.RegistryBucket("hub"), guest) },
			"a duplicate each incarnation":          func() bool { return duplicates(t, js) == incarnation+1 },
			"segments":                              func() bool { return count(t, store, "o/hub/mag/s/") == incarnation+1 },
			"both indexed": func() bool {
				return has(t, js, wire.IndexBucket("hub"), "mag") && has(t, js, wire.IndexBucket("hub"), "spectra")
			},
			"the descriptions told": func() bool {
				kv, err := js.KeyValue(t.Context(), wire.DescriptionBucket("hub"))
				if err != nil {
					t.Fatal(err)
				}
				keys, err := kv.Keys(t.Context())
				return err == nil && len(keys) == 2
			},
		} {
			waitFor(t, func() error {
				if !holds() {
					return errors.New("not yet: " + what)
				}
				return nil
			})
		}
		g.Stop()
		a.Stop()
		if incarnation == 0 {
			if err := registry.Delete(t.Context(), guest); err != nil {
				t.Fatal(err)
			}
			g.Start()
			a.Start()
		}
	}
	for line := range strings.Lines(g.Log() + a.Log()) {
		if low := strings.ToLower(line); strings.Contains(low, "violation") || strings.Contains(low, "not authorized") {
			t.Errorf("one may not do what it does: %s", line)
		}
	}
}

func sendSpectrum(t *testing.T, method, url, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Errorf("%s %s: %s", method, url, resp.Status)
	}
}

// duplicates counts the objects that are announced as duplicates.
func duplicates(t *testing.T, js jetstream.JetStream) int {
	t.Helper()
	s, err := js.Stream(t.Context(), wire.NoticeStream("hub"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for seq := uint64(1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if n, err := wire.Decode[wire.Notice](m.Data); err == nil && n.State == wire.StateDuplicate {
			all[n.ID] = true
		}
	}
	return len(all)
}

func count(t *testing.T, store objectstore.Store, prefix string) (n int) {
	t.Helper()
	for _, err := range store.List(t.Context(), prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

func has(t *testing.T, js jetstream.JetStream, bucket, key string) bool {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), bucket)
	if err != nil {
		t.Fatal(err)
	}
	_, err = kv.Get(t.Context(), key)
	if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Fatal(err)
	}
	return err == nil
}
