// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // the protocol names it
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const tusStream = "application/offset+octet-stream"

// tus sends a request of the protocol.
func tus(method, url string, body io.Reader, header ...string) reply {
	return ask(method, url, body, append([]string{"Tus-Resumable", "1.0.0"}, header...)...)
}

func (r reply) wantOffset(t *testing.T, status int, offset int) {
	t.Helper()
	if r.err != nil || r.status != status || r.header.Get("Upload-Offset") != strconv.Itoa(offset) || r.header.Get("Tus-Resumable") != "1.0.0" {
		t.Fatalf("the reply is not %d at offset %d: %v", status, offset, r)
	}
}

// beginUpload creates an upload and returns its URL.
func beginUpload(t *testing.T, port int, name string, length int, header ...string) string {
	t.Helper()
	header = append(header, "Upload-Length", strconv.Itoa(length))
	if name != "" {
		header = append(header, "Upload-Metadata", "filename "+base64.StdEncoding.EncodeToString([]byte(name))+",filetype "+base64.StdEncoding.EncodeToString([]byte("image/png")))
	}
	r := tus(http.MethodPost, in(port, "camera", ""), nil, header...)
	if r.err != nil || r.status != http.StatusCreated || !strings.HasPrefix(r.header.Get("Location"), ".uploads/") {
		t.Fatalf("an upload is not created: %v", r)
	}
	return in(port, "camera", r.header.Get("Location")) // relative, as RFC 9110, 10.2.2 allows: behind a path prefix it is right, too
}

func patch(url string, offset int, bytes io.Reader, header ...string) reply {
	return tus(http.MethodPatch, url, bytes, append([]string{"Upload-Offset", strconv.Itoa(offset), "Content-Type", tusStream}, header...)...)
}

// An upload through two gateways, cut off and killed on the way, becomes one
// object of its name.
func TestUploadGoesOn(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ports := []int{testenv.FreePort(t), testenv.FreePort(t)}
	e := httpInstrument("camera", ports[0])
	e.Listeners = append(e.Listeners, httpInstrument("camera", ports[1]).Listeners...)
	l.declare(t, e)
	var gateways [2]*gateway
	for i := range ports {
		gateways[i] = l.start(t, gatewayOptions{name: fmt.Sprintf("north-%d", i), flags: []string{"--ports", fmt.Sprintf("%d-%d", ports[i], ports[i])}})
		awaitListening(t, ports[i])
	}
	object := random(1, 40<<20)
	url := beginUpload(t, ports[0], "2026/large.png", len(object))
	other := strings.Replace(url, loopback(ports[0]), loopback(ports[1]), 1)

	patch(url, 0, bytes.NewReader(object[:1000])).wantOffset(t, 204, 1000)
	// A connection that is cut in the midst of a piece: what arrived is kept.
	silence, _ := io.Pipe()
	defer silence.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, url, io.MultiReader(bytes.NewReader(object[1000:1000+20<<20]), silence))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Tus-Resumable": "1.0.0", "Upload-Offset": "1000", "Content-Type": tusStream} {
		req.Header.Set(name, value)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
			t.Errorf("a request that was cut off is answered: %s", resp.Status)
		}
	}()
	await(t, "a piece of 16 MiB is kept, and the 4 MiB after it have arrived", func() (bool, string) {
		held := gateways[0].number("substorm_gateway_memory_used_bytes") + gateways[0].number("substorm_gateway_scratch_used_bytes")
		keys := l.keys(t, wire.StagingPrefix(l.site))
		return len(keys) == 3 && held > 3<<20 && held < 5<<20, fmt.Sprint(held, keys)
	})
	_ = silence.Close()
	<-ended
	offset := 0
	await(t, "the cut request's bytes are kept", func() (bool, string) {
		r := tus(http.MethodHead, other, nil)
		offset, _ = strconv.Atoi(r.header.Get("Upload-Offset"))
		return offset > 17<<20, r.String()
	})
	if offset >= len(object) {
		t.Fatalf("offset %d", offset)
	}
	patch(other, offset-1, bytes.NewReader(object[offset-1:])).wantOffset(t, 409, offset)
	gateways[0].kill()
	patch(other, offset, io.LimitReader(bytes.NewReader(object[offset:]), 5<<20)).wantOffset(t, 204, offset+5<<20)
	offset += 5 << 20
	last := patch(other, offset, bytes.NewReader(object[offset:]))
	last.wantOffset(t, 204, len(object))
	if last.header.Get("Repr-Digest") != reprDigest(object) || last.header.Get("Content-Location") != "/o/hub/camera/n/2026/large.png" {
		t.Errorf("the last answer is no receipt: %v", last)
	}
	notices := l.notices(t)
	if len(notices) != 1 || notices[0].Name != "2026/large.png" || notices[0].MediaType != "image/png" {
		t.Fatalf("notices %+v", notices)
	}
	if digest, size := l.digestOf(t, notices[0].Record); digest != sha256.Sum256(object) || size != int64(len(object)) {
		t.Errorf("in the bucket: %d bytes, %s", size, digest)
	}
	// A client that did not get the answer asks, and gets it.
	again := tus(http.MethodHead, other, nil)
	again.wantOffset(t, 200, len(object))
	if again.header.Get("Repr-Digest") != reprDigest(object) {
		t.Errorf("asked again: %v", again)
	}
	if left := l.keys(t, wire.StagingPrefix(l.site)); len(left) != 2 {
		t.Errorf("of the upload is left %v", left)
	}
	l.awaitLedger(t, "camera", wire.StepReceived, func(s wire.Totals) bool { return s.Objects == 1 && s.ObjectBytes == uint64(len(object)) })
}

// A gateway is killed when all bytes have arrived and before the object is in the archive: a client
// that asks then is answered that it is whole only once it is there.
func TestUploadKilledAtItsEnd(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	l.declare(t, httpInstrument("camera", port))
	dir := t.TempDir()
	g := l.start(t, gatewayOptions{dir: dir})
	g.awaitReady()
	awaitListening(t, port)
	object := random(1, 300_000)
	url := beginUpload(t, port, "frame.png", len(object))
	l.nats.Pause() // the pieces arrive, and no name can be claimed
	t.Cleanup(l.nats.Continue)
	answers := make(chan reply, 1)
	go func() { answers <- patch(url, 0, bytes.NewReader(object)) }()
	await(t, "the piece has arrived", func() (bool, string) {
		keys := l.keys(t, wire.StagingPrefix(l.site))
		return len(keys) == 2, fmt.Sprint(keys)
	})
	g.awaitUnsafe("1")
	g.kill()
	if r := <-answers; r.err == nil {
		t.Fatalf("a killed gateway answers %v", r)
	}
	l.nats.Continue()
	l.start(t, gatewayOptions{dir: dir})
	awaitListening(t, port)
	r := tus(http.MethodHead, url, nil)
	r.wantOffset(t, 200, len(object))
	notices := l.notices(t)
	if len(notices) != 1 || notices[0].Digest != sha256.Sum256(object) || r.header.Get("Repr-Digest") != reprDigest(object) {
		t.Fatalf("%v; notices %+v", r, notices)
	}
}

// The requirements of the protocol, beside uploads that go well.
func TestUploadProtocol(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	e := httpInstrument("camera", port)
	e.MaxObjectSize = 64 << 20
	l.declare(t, e)
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	awaitListening(t, port)
	base := in(port, "camera", "")

	options := ask(http.MethodOptions, base, nil)
	if options.status != 204 || options.header.Get("Tus-Version") != "1.0.0" || options.header.Get("Tus-Max-Size") != "67108864" ||
		options.header.Get("Tus-Extension") != "creation,creation-defer-length,creation-with-upload,expiration,checksum,termination" || options.header.Get("Tus-Checksum-Algorithm") != "sha1,sha256" {
		t.Errorf("OPTIONS: %v", options)
	}

	// With all its bytes.
	object := random(1, 20<<20)
	whole := tus(http.MethodPost, base, bytes.NewReader(object), "Upload-Length", strconv.Itoa(len(object)), "Content-Type", tusStream, "Repr-Digest", reprDigest(object))
	whole.wantOffset(t, 201, len(object))
	if whole.header.Get("Repr-Digest") != reprDigest(object) || !strings.HasPrefix(whole.header.Get("Content-Location"), "/o/hub/camera/r/") {
		t.Errorf("created with all its bytes: %v", whole)
	}

	// Checksums, also of more than a piece: what is wrong leaves nothing.
	large := random(2, 35<<20)
	sum, sum1 := sha256.Sum256(large), sha1.Sum(large[:1000]) //nolint:gosec // as above
	url := beginUpload(t, port, "", len(large)+1000)
	patch(url, 0, bytes.NewReader(large[:1000]), "Upload-Checksum", "sha1 "+base64.StdEncoding.EncodeToString(sum1[:])).wantOffset(t, 204, 1000)
	wrong := patch(url, 1000, bytes.NewReader(large), "Upload-Checksum", "sha256 "+base64.StdEncoding.EncodeToString(sum[1:])+"AA==")
	if wrong.status != 400 { // it is no base64
		t.Errorf("a checksum that cannot be read: %v", wrong)
	}
	sum[0]++
	if r := patch(url, 1000, bytes.NewReader(large), "Upload-Checksum", "sha256 "+base64.StdEncoding.EncodeToString(sum[:])); r.status != 460 {
		t.Errorf("a wrong checksum: %v", r)
	}
	tus(http.MethodHead, url, nil).wantOffset(t, 200, 1000)
	sum[0]--
	r := patch(url, 1000, bytes.NewReader(large), "Upload-Checksum", "sha256 "+base64.StdEncoding.EncodeToString(sum[:]))
	r.wantOffset(t, 204, len(large)+1000)
	if whole := append(bytes.Clone(large[:1000]), large...); r.header.Get("Repr-Digest") != reprDigest(whole) {
		t.Errorf("the object is another: %v", r)
	}

	// Wrong requests get an answer that says so.
	url = beginUpload(t, port, "", 1000)
	for name, c := range map[string]struct {
		got    reply
		status int
	}{
		"no version":           {ask(http.MethodHead, url, nil), 412},
		"another version":      {ask(http.MethodPost, base, nil, "Tus-Resumable", "0.2.2", "Upload-Length", "1"), 412},
		"no length":            {tus(http.MethodPost, base, nil), 400},
		"two lengths":          {tus(http.MethodPost, base, nil, "Upload-Defer-Length", "1", "Upload-Length", "1"), 400},
		"nothing":              {tus(http.MethodPost, base, nil, "Upload-Length", "0"), 400},
		"a part of an object":  {tus(http.MethodPost, base, nil, "Upload-Length", "1", "Upload-Concat", "partial"), 400},
		"parts of an object":   {tus(http.MethodPost, base, nil, "Upload-Concat", "final;/in/camera/.uploads/0"), 400},
		"a negative length":    {tus(http.MethodPost, base, nil, "Upload-Length", "-1"), 400},
		"too much":             {tus(http.MethodPost, base, nil, "Upload-Length", "67108865"), 413},
		"a name that is none":  {tus(http.MethodPost, base, nil, "Upload-Length", "1", "Upload-Metadata", "filename Li4veA=="), 400},
		"no base64":            {tus(http.MethodPost, base, nil, "Upload-Length", "1", "Upload-Metadata", "filename ??"), 400},
		"another type":         {tus(http.MethodPatch, url, strings.NewReader("x"), "Upload-Offset", "0", "Content-Type", "text/plain"), 415},
		"no offset":            {tus(http.MethodPatch, url, strings.NewReader("x"), "Content-Type", tusStream), 400},
		"another offset":       {patch(url, 5, strings.NewReader("x")), 409},
		"more than its length": {patch(url, 0, bytes.NewReader(object[:1001])), 413},
		"another checksum":     {patch(url, 0, strings.NewReader("x"), "Upload-Checksum", "md5 eA=="), 400},
		"no such upload":       {tus(http.MethodHead, url[:len(url)-1]+"g", nil), 404},
		"none of this id":      {tus(http.MethodPatch, base+".uploads/0123456789abcdef0123456789abcdef", nil), 404},
		"another method":       {tus(http.MethodPut, url, nil), 405},
	} {
		if c.got.err != nil || c.got.status != c.status {
			t.Errorf("%s: want %d, got %v", name, c.status, c.got)
		}
	}
	tus(http.MethodHead, url, nil).wantOffset(t, 200, 0)

	// Methods that cannot be sent, and the end of an upload.
	tus(http.MethodPost, url, strings.NewReader("12345"), "X-HTTP-Method-Override", "PATCH", "Upload-Offset", "0", "Content-Type", tusStream).wantOffset(t, 204, 5)
	if r := tus(http.MethodDelete, url, nil); r.status != 204 {
		t.Errorf("DELETE: %v", r)
	}
	if r := tus(http.MethodHead, url, nil); r.status != 404 {
		t.Errorf("after DELETE: %v", r)
	}
}

// Digests that a request states are compared: its content's with its bytes, the object's once it is whole.
func TestUploadDigests(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	l.declare(t, httpInstrument("camera", port))
	l.start(t, gatewayOptions{}).awaitReady()
	awaitListening(t, port)
	object := random(1, 3000)
	first, last, wrong := object[:1000], object[1000:], reprDigest([]byte("other"))
	begin := func(header ...string) string {
		url := beginUpload(t, port, "", len(object), header...)
		patch(url, 0, bytes.NewReader(first), "Content-Digest", reprDigest(first), "Repr-Digest", reprDigest(object)).wantOffset(t, 204, len(first))
		return url
	}
	url := begin()
	for _, header := range [][]string{{"Content-Digest", wrong}, {"Repr-Digest", "junk"}, {"Content-Digest", "!!"}} {
		if r := patch(url, len(first), bytes.NewReader(last), header...); r.status != 400 {
			t.Errorf("with %v: %v", header, r)
		}
		tus(http.MethodHead, url, nil).wantOffset(t, 200, len(first))
	}
	patch(url, len(first), bytes.NewReader(last), "Content-Digest", reprDigest(last), "Repr-Digest", reprDigest(object)).wantOffset(t, 204, len(object))
	if r := patch(url, len(object), nil, "Repr-Digest", wrong); r.status != 400 {
		t.Errorf("of an object that is in the archive: %v", r)
	}

	// An object that is another is not put into the archive, whichever client asks for it
	// afterwards.
	url = begin()
	if r := patch(url, len(first), bytes.NewReader(last), "Repr-Digest", wrong); r.status != 400 {
		t.Errorf("with another digest of the object: %v", r)
	}
	if r := tus(http.MethodHead, url, nil); r.status != 404 {
		t.Errorf("the upload of another object is still there: %v", r)
	}
	url = begin("Repr-Digest", reprDigest(object))
	if r := patch(url, len(first), bytes.NewReader(last), "Repr-Digest", wrong); r.status != 400 {
		t.Errorf("with another digest than the upload began with: %v", r)
	}
	tus(http.MethodHead, url, nil).wantOffset(t, 200, len(first))
	if n := len(l.notices(t)); n != 1 {
		t.Errorf("%d objects are announced, want 1", n)
	}
}

// tuspy, a public client of the protocol.
func TestTuspy(t *testing.T) {
	t.Parallel()
	python := tuspy(t)
	l := newLab(t)
	port := testenv.FreePort(t)
	l.declare(t, httpInstrument("camera", port))
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	awaitListening(t, port)
	object := random(1, 9<<20)
	file := filepath.Join(t.TempDir(), "frame.png")
	if err := os.WriteFile(file, object, 0o600); err != nil {
		t.Fatal(err)
	}
	// It continues, half way, with another client object that knows the URL alone.
	script := `
import sys
from tusclient import client
c = client.TusClient(sys.argv[1])
u = c.uploader(sys.argv[2], chunk_size=2*1024*1024, metadata={"filename": "by/tuspy.png", "filetype": "image/png"}, upload_checksum=True)
u.upload(stop_at=4*1024*1024)
v = client.TusClient(sys.argv[1]).uploader(sys.argv[2], chunk_size=1024*1024, url=u.url, upload_checksum=True)
assert v.offset == 4*1024*1024, v.offset
v.upload()
assert v.offset == ` + strconv.Itoa(len(object)) + `, v.offset
`
	out, err := exec.Command(python, "-c", script, in(port, "camera", ""), file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	notices := l.notices(t)
	if len(notices) != 1 || notices[0].Name != "by/tuspy.png" || notices[0].Digest != sha256.Sum256(object) {
		t.Fatalf("notices %+v", notices)
	}
}

// tuspy returns a Python that has it, or skips the test.
func tuspy(t *testing.T) string {
	t.Helper()
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, "substorm", "tuspy-1.1.0")
	python := filepath.Join(dir, "bin", "python3")
	if exec.Command(python, "-c", "import tusclient").Run() == nil {
		return python
	}
	if out, err := exec.Command("python3", "-m", "venv", dir).CombinedOutput(); err != nil {
		t.Skipf("no Python with venv: %v\n%s", err, out)
	}
	if out, err := exec.Command(python, "-m", "pip", "install", "--quiet", "tuspy==1.1.0").CombinedOutput(); err != nil {
		t.Skipf("tuspy is not to be had: %v\n%s", err, out)
	}
	return python
}
