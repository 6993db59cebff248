// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// If-None-Match and If-Match (RFC 9110, 13.1) say which object a name must have, or that it has none: otherwise 412, and
// nothing is stored, also where versions are kept. The same bytes again are a receipt that was lost.
func TestPreconditions(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	once, versions := httpInstrument("once", port), httpInstrument("versions", port)
	versions.Versions = wire.VersionsKeep
	revision := l.declare(t, once, versions)
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)
	awaitListening(t, port)
	first, other, third := random(41, 900), random(42, 900), random(43, 900)
	etag := func(object []byte) string { return fmt.Sprintf("%q", wire.Digest(sha256.Sum256(object))) }
	failed := func(r reply) {
		t.Helper()
		r.wantRefusal(t, http.StatusPreconditionFailed, wire.CausePreconditionFailed)
	}
	for _, instrument := range []string{"once", "versions"} {
		at := in(port, instrument, "a")
		failed(put(at, first, "If-Match", "*"))
		failed(put(at, first, "If-Match", etag(first)))
		put(at, first, "If-None-Match", "*").wantReceipt(t, http.StatusCreated, first)
		put(at, first, "If-None-Match", "*").wantReceipt(t, http.StatusOK, first)
		failed(put(at, other, "If-None-Match", "*"))
		failed(put(at, other, "If-None-Match", "*", "Repr-Digest", reprDigest(other)))
		failed(put(at, other, "If-None-Match", `"0", W/`+etag(first)))
		failed(put(at, other, "If-Match", etag(other)))
		failed(put(at, other, "If-Match", "W/"+etag(first)))
		failed(ask(http.MethodPost, in(port, instrument, ""), bytes.NewReader(other), "If-Match", "*"))
		failed(tus(http.MethodPost, in(port, instrument, ""), nil, "Upload-Length", "900", "Upload-Metadata", "filename YQ==", "If-None-Match", "*"))
	}
	for _, malformed := range []string{"", "0", strings.Trim(etag(first), `"`), `*, "0"`, `"0" "1"`, `w/"0"`} {
		for _, header := range []string{"If-Match", "If-None-Match"} {
			put(in(port, "versions", "a"), other, header, malformed).wantRefusal(t, http.StatusBadRequest, wire.CauseBadRequest)
			if r := tus(http.MethodPost, in(port, "versions", ""), nil, "Upload-Length", "900", "Upload-Metadata", "filename YQ==", header, malformed); r.status != http.StatusBadRequest {
				t.Errorf("an upload with %s %q: %v", header, malformed, r)
			}
		}
	}
	put(in(port, "once", "a"), other, "If-Match", etag(first)).wantRefusal(t, http.StatusPreconditionFailed, wire.CausePreconditionFailed)
	put(in(port, "versions", "a"), other, "If-Match", `, "0",, `+etag(first)).wantReceipt(t, http.StatusCreated, other)
	put(in(port, "versions", "a"), other, "If-Match", etag(first)).wantReceipt(t, http.StatusOK, other) // as if its receipt had been lost
	failed(put(in(port, "versions", "a"), third, "If-Match", etag(first)))
	put(in(port, "versions", "a"), third, "If-None-Match", etag(first)).wantReceipt(t, http.StatusCreated, third)
	for instrument, want := range map[string]int{"once": 1, "versions": 3} {
		if keys := l.keys(t, "o/hub/"+instrument+"/"); len(keys) != want {
			t.Errorf("%s has %v, want %d objects", instrument, keys, want)
		}
	}
}

// An upload by tus keeps the conditions of the request that created it: they are judged when its last byte arrives, also by
// another gateway than the one that was asked first. Those of a PATCH are judged before its bytes are taken.
func TestPreconditionsOfUploads(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ports := []int{testenv.FreePort(t), testenv.FreePort(t)}
	camera := httpInstrument("camera", ports[0])
	camera.Versions = wire.VersionsKeep
	camera.Listeners = append(camera.Listeners, httpInstrument("camera", ports[1]).Listeners...)
	l.declare(t, camera)
	var gateways [2]*gateway
	for i := range ports {
		gateways[i] = l.start(t, gatewayOptions{name: fmt.Sprintf("north-%d", i), flags: []string{"--ports", fmt.Sprintf("%d-%d", ports[i], ports[i])}})
		awaitListening(t, ports[i])
	}
	first, other, third := random(46, 900), random(47, 900), random(48, 900)
	etag := func(object []byte) string { return fmt.Sprintf("%q", wire.Digest(sha256.Sum256(object))) }
	failed := func(r reply) {
		t.Helper()
		r.wantRefusal(t, http.StatusPreconditionFailed, wire.CausePreconditionFailed)
	}
	object := func(name string) string { return in(ports[1], "camera", name) }
	put(object("c"), first).wantReceipt(t, http.StatusCreated, first)
	raced := beginUpload(t, ports[0], "a", 900, "If-None-Match", "*")
	same := beginUpload(t, ports[0], "b", 900, "If-None-Match", "*")
	changed := beginUpload(t, ports[0], "c", 900, "If-Match", etag(first))
	for _, url := range []string{raced, same, changed} {
		patch(url, 0, bytes.NewReader(other[:400])).wantOffset(t, http.StatusNoContent, 400)
	}
	gateways[0].kill()
	here := func(url string) string { return strings.Replace(url, loopback(ports[0]), loopback(ports[1]), 1) }
	put(object("a"), first).wantReceipt(t, http.StatusCreated, first)
	put(object("b"), other).wantReceipt(t, http.StatusCreated, other)
	put(object("c"), third).wantReceipt(t, http.StatusCreated, third)
	failed(patch(here(raced), 400, bytes.NewReader(other[400:])))
	if r := tus(http.MethodHead, here(raced), nil, "If-Match", etag(first)); r.status != http.StatusPreconditionFailed {
		t.Errorf("asked again: %v", r)
	}
	patch(here(same), 400, bytes.NewReader(other[400:])).wantReceipt(t, http.StatusNoContent, other)
	failed(patch(here(changed), 400, bytes.NewReader(other[400:])))

	free := beginUpload(t, ports[1], "a", 900)
	for _, header := range [][]string{{"If-Match", `"nope"`}, {"If-None-Match", "*"}, {"If-None-Match", etag(first)}} {
		failed(patch(free, 0, bytes.NewReader(other), header...))
	}
	patch(free, 0, bytes.NewReader(other), "If-Match", "nope").wantRefusal(t, http.StatusBadRequest, wire.CauseBadRequest)
	tus(http.MethodHead, free, nil).wantOffset(t, http.StatusOK, 0)
	patch(free, 0, bytes.NewReader(other[:400]), "If-Match", etag(first)).wantOffset(t, http.StatusNoContent, 400)
	put(object("a"), third).wantReceipt(t, http.StatusCreated, third)
	failed(patch(free, 400, bytes.NewReader(other[400:]), "If-Match", etag(first)))
	patch(free, 400, bytes.NewReader(other[400:]), "If-Match", etag(third)).wantReceipt(t, http.StatusNoContent, other)
	if r := tus(http.MethodPost, object(""), nil, "Upload-Length", "900", "If-None-Match", strings.Repeat(`"0",`, 1100)); r.status != http.StatusBadRequest {
		t.Errorf("an upload with conditions of 4400 bytes: %v", r)
	}
	if keys := l.keys(t, "o/hub/camera/"); len(keys) != 6 {
		t.Errorf("the archive has %v, want three objects named a, one b and two c", keys)
	}
}

// An upload whose length is said later becomes an object like others; one of no bytes is refused, since the archive
// keeps no empty objects.
func TestUploadsOfUnknownLength(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	camera := httpInstrument("camera", port)
	camera.MaxObjectSize = 10_000
	revision := l.declare(t, camera)
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)
	awaitListening(t, port)
	if got := ask(http.MethodOptions, in(port, "camera", ""), nil).header.Get("Tus-Extension"); !bytes.Contains([]byte(got), []byte("creation-defer-length")) {
		t.Errorf("extensions %q", got)
	}
	begin := func(header ...string) reply { return tus(http.MethodPost, in(port, "camera", ""), nil, header...) }
	begin("Upload-Length", "0").wantRefusal(t, http.StatusBadRequest, wire.CauseEmpty)
	begin("Upload-Defer-Length", "2").wantRefusal(t, http.StatusBadRequest, wire.CauseBadRequest)
	begin("Upload-Defer-Length", "1", "Upload-Length", "9").wantRefusal(t, http.StatusBadRequest, wire.CauseBadRequest)
	begin("Upload-Length", "-1").wantRefusal(t, http.StatusBadRequest, wire.CauseBadRequest)
	deferred := func() string {
		t.Helper()
		r := begin("Upload-Defer-Length", "1")
		if r.status != http.StatusCreated {
			t.Fatalf("an upload of unknown length: %v", r)
		}
		return in(port, "camera", r.header.Get("Location"))
	}
	object := random(44, 3000)

	at := deferred()
	patch(at, 0, bytes.NewReader(object[:1000])).wantOffset(t, http.StatusNoContent, 1000)
	if head := tus(http.MethodHead, at, nil); head.header.Get("Upload-Defer-Length") != "1" || head.header.Get("Upload-Length") != "" || head.header.Get("Upload-Offset") != "1000" {
		t.Errorf("an upload of unknown length is described as %v", head)
	}
	patch(at, 1000, nil, "Upload-Length", "10001").wantRefusal(t, http.StatusRequestEntityTooLarge, wire.CauseObjectTooLarge)
	patch(at, 1000, nil, "Upload-Length", "999").wantRefusal(t, http.StatusBadRequest, wire.CauseBadRequest)
	patch(at, 1000, bytes.NewReader(object[1000:2000]), "Upload-Length", "3000").wantOffset(t, http.StatusNoContent, 2000)
	patch(at, 2000, bytes.NewReader(object[2000:]), "Upload-Length", "3001").wantRefusal(t, http.StatusBadRequest, wire.CauseBadRequest)
	if head := tus(http.MethodHead, at, nil); head.header.Get("Upload-Length") != "3000" || head.header.Get("Upload-Defer-Length") != "" {
		t.Errorf("an upload whose length was said is described as %v", head)
	}
	patch(at, 2000, bytes.NewReader(object[2000:])).wantReceipt(t, http.StatusNoContent, object)
	tus(http.MethodHead, at, nil).wantReceipt(t, http.StatusOK, object)

	at = deferred() // whose end is only known behind the last byte
	patch(at, 0, bytes.NewReader(object[:2500])).wantOffset(t, http.StatusNoContent, 2500)
	patch(at, 2500, nil, "Upload-Length", "2500").wantReceipt(t, http.StatusNoContent, object[:2500])

	at = deferred()
	patch(at, 0, bytes.NewReader(random(45, 10_001))).wantRefusal(t, http.StatusRequestEntityTooLarge, wire.CauseObjectTooLarge)
	if r := tus(http.MethodDelete, at, nil); r.status != http.StatusNoContent {
		t.Errorf("an upload of unknown length is terminated: %v", r)
	}
	at = deferred()
	patch(at, 0, nil, "Upload-Length", "0").wantRefusal(t, http.StatusBadRequest, wire.CauseEmpty)
}
