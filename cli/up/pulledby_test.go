// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up_test

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
)

const pulledBy = `
  readersSecretRef: {name: readers}
  pulledBy: [{reader: hub, instrumentNames: [camera]}]`

const readersOfPulled = `
apiVersion: v1
kind: Secret
metadata: {name: readers, labels: {substorm.dev/tokens: "true"}}
stringData: {hub: 0123456789abcdef-hub}
`

const pullAsReader = `
apiVersion: v1
kind: Secret
metadata: {name: origin}
data: {token: %[4]s, ca.crt: %[5]s}
---
apiVersion: substorm.dev/v1alpha1
kind: MirrorPartner
metadata: {name: from-%[2]s}
spec:
  siteRef: {name: %[1]s}
  direction: Pull
  protocol: HTTPS
  https: {url: %[3]q, source: Substorm, origin: %[2]s, tokenSecretKeyRef: {name: origin, key: token}, tls: {caSecretRef: {name: origin}}}
  schedule: {cron: "0 0 1 1 *"}
  selection: {versions: All}
`

// TestPulledBy: the origin reports what the hub has, with the credentials that its own feed server has at NATS: in the Site's
// status, and in the report.
func TestPulledBy(t *testing.T) {
	t.Parallel()
	origin, hub := newMirrored(t, "thule"), newMirrored(t, "kiruna")
	origin.write("readers.yaml", readersOfPulled)
	origin.write("site.yaml", strings.Replace(fmt.Sprintf(pulledSite, origin.code, origin.port), "  archivist: {partInterval: 1s}", "  archivist: {partInterval: 1s}"+pulledBy, 1))
	front, ca := secured(t, origin.URL)
	hub.write("partner.yaml", fmt.Sprintf(pullAsReader, hub.code, origin.code, front,
		base64.StdEncoding.EncodeToString([]byte("0123456789abcdef-hub")), base64.StdEncoding.EncodeToString(ca)))
	origin.ready("site/thule", "instrument/camera")
	hub.ready("site/kiruna", "mirrorpartner/from-thule")
	for i := range 3 {
		origin.send("camera", fmt.Sprintf("%d.jpg", i), []byte(fmt.Sprint("frame ", i)))
		origin.has(fmt.Sprintf("/archive/camera/n/%d.jpg", i), []byte(fmt.Sprint("frame ", i)))
	}
	hub.pulls(origin)

	kubectl := testenv.Path(t, "kubectl")
	eventually(t, "the Site's status says what the hub has", func() error {
		var puller struct {
			Reader                        string
			ConfirmedTime, VerifiedToTime string
			OwedObjectCount               int
		}
		said := origin.run(kubectl, "get", "site", "thule", "-o", "jsonpath={.status.pulledBy[0]}")
		if err := json.Unmarshal([]byte(said), &puller); err != nil {
			return fmt.Errorf("%w: %q", err, said)
		}
		if puller.Reader != "hub" || puller.ConfirmedTime == "" || puller.VerifiedToTime == "" || puller.OwedObjectCount != 0 {
			return fmt.Errorf("it says %s", said)
		}
		return nil
	})
	var report struct {
		Agree       bool
		Instruments []struct {
			Instrument string
			Mirrored   map[string]uint64
		}
	}
	said := origin.substorm("archive", "report", "--day", "today", "-o", "json")
	if err := json.Unmarshal([]byte(said), &report); err != nil {
		t.Fatal(err)
	}
	has := map[string]uint64{}
	for _, i := range report.Instruments {
		has[i.Instrument] = i.Mirrored["reader_hub"]
	}
	if has["camera"] != 3 || !report.Agree {
		t.Errorf("the report says %s", said)
	}
}

// secured returns a server in front of another one that ends TLS, and the authority of its certificate.
func secured(t *testing.T, behind string) (address string, ca []byte) {
	t.Helper()
	to, err := url.Parse(behind)
	if err != nil {
		t.Fatal(err)
	}
	authority := testenv.NewCA(t)
	certificate, key := authority.Issue(t, "archive")
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(to))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, authority.PEM
}
