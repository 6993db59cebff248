// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// A web page writes nothing through a browser, at whichever endpoint and also where its name points here: 403, counted, nothing is kept.
// A request without a browser's headers is received.
func TestWebPagesWriteNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	revision := l.declare(t, httpInstrument("camera", port))
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)
	awaitListening(t, port)
	object := random(24, 1000)
	upload := beginUpload(t, port, "", len(object))
	tus := []string{"Tus-Resumable", "1.0.0"}
	brings := append([]string{"Upload-Offset", "0", "Content-Type", tusStream}, tus...)
	pages := [][]string{
		{"Sec-Fetch-Site", "cross-site", "Origin", "http://evil.example"},
		{"Sec-Fetch-Site", "same-site"},
		{"Origin", "http://evil.example"},
		{"Origin", "null"},
		{"Host", "evil.example", "Sec-Fetch-Site", "same-origin", "Origin", "http://evil.example"},
		{"Sec-Fetch-Site", "same-origin"},
		{"Origin", "http://" + loopback(port)},
	}
	refused := 0
	for _, c := range []struct {
		method, url string
		header      []string
	}{
		{http.MethodPost, in(port, "camera", ""), []string{"Content-Type", "text/plain"}},
		{http.MethodPut, in(port, "camera", "a"), nil},
		{"MKCOL", in(port, "camera", "folder/"), nil},
		{http.MethodPost, in(port, "camera", ""), append([]string{"Upload-Length", "1000"}, tus...)},
		{http.MethodPatch, upload, brings},
		{http.MethodPost, upload, append([]string{"X-HTTP-Method-Override", "PATCH"}, brings...)},
		{http.MethodDelete, upload, tus},
	} {
		for _, page := range pages {
			ask(c.method, c.url, bytes.NewReader(object), append(page, c.header...)...).wantRefusal(t, http.StatusForbidden, wire.CauseCrossOrigin)
			refused++
		}
	}
	series := fmt.Sprintf("substorm_gateway_refused_total{cause=%q,instrument=%q}", wire.CauseCrossOrigin, "camera")
	if v := g.metric(series); v != fmt.Sprint(refused) {
		t.Errorf("%s is %s, want %d", series, v, refused)
	}
	if keys := l.keys(t, "o/hub/camera/"); len(keys) != 0 {
		t.Errorf("web pages wrote %v", keys)
	}
	ask(http.MethodPatch, upload, bytes.NewReader(object), brings...).wantReceipt(t, http.StatusNoContent, object)
	for i, header := range [][]string{nil, {"Sec-Fetch-Site", "none"}} {
		other := random(uint64(100+i), 500)
		put(in(port, "camera", fmt.Sprint("of-a-program-", i)), other, header...).wantReceipt(t, http.StatusCreated, other)
	}
}

// Uploaders by WebDAV, as those of camera programs, make a folder, put an object into it, and show the token as
// password, some only once they were asked for it.
func TestWebDAVUploaders(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	l := newTLSLab(t)
	const token = "0123456789abcdef-camera"
	port := testenv.FreePort(t)
	camera := httpInstrument("camera", port)
	camera.Listeners[0].TLS, camera.Listeners[0].Tokens = wire.TLSServer, []wire.TokenHash{wire.HashToken([]byte("salt"), token)}
	l.awaitRevision(t, l.gateway.name, l.declare(t, camera))
	awaitListening(t, port)
	file := filepath.Join(t.TempDir(), "image.jpg")
	if err := os.WriteFile(file, random(38, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("https://localhost:%d/in/camera/", port)
	for _, c := range []struct {
		args string
		want string
	}{
		{"-u allsky:" + token + " -X MKCOL " + at + "2026/", "201"},
		{"-u allsky:" + token + " -X MKCOL " + at + "2026/", "201"},
		{"-u allsky:" + token + " -X MKCOL " + at, "201"},
		{"-u allsky:" + token + " -X MKCOL --data x " + at + "2026/", "415"},
		{"-u allsky:" + token + " -X MKCOL " + at + "2026//11/", "400"},
		{"-u allsky:" + token + " -T " + file + " " + at + "2026/", "201"},
		{"-u allsky:" + token + " -T " + file + " " + at + "latest", "201"},
		{"-u allsky:" + token + " -X MKCOL " + at + "latest", "405"},
		{"--anyauth -u allsky:" + token + " -X MKCOL " + at + "2026/11/", "201"},
		{"--anyauth -u allsky:" + token + " -T " + file + " " + at + "2026/11/other.jpg", "201"},
		{"--anyauth -u allsky:wrong -T " + file + " " + at + "2026/11/third.jpg", "401"},
		{"-u " + token + ": -T " + file + " " + at + "2026/11/third.jpg", "401"},
	} {
		out, err := exec.CommandContext(t.Context(), "curl", append([]string{"-ksS", "-o", "/dev/null", "-w", "%{http_code}"}, strings.Fields(c.args)...)...).CombinedOutput()
		if err != nil || string(out) != c.want {
			t.Errorf("curl %s: %s, %v, want %s", strings.ReplaceAll(c.args, token, "TOKEN"), out, err, c.want)
		}
	}
	if keys := l.keys(t, "o/hub/camera/"); len(keys) != 3 {
		t.Errorf("in the archive: %v", keys)
	}
}
