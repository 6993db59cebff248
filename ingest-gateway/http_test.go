// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// Named and nameless objects of all sizes, from a request to the bucket, the
// stream and the ledger.
func TestHTTPEndToEnd(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	camera, aurora := httpInstrument("camera", port), httpInstrument("aurora", port)
	camera.Listeners[0].Sources = []string{"127.0.0.0/8"}
	aurora.Listeners[0].Sources = []string{"192.0.2.0/24"}
	retired := httpInstrument("retired", port)
	retired.Retired = true
	revision := l.declare(t, camera, aurora, retired)
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)
	awaitListening(t, port)

	object := random(1, 70_001)
	if at := put(in(port, "camera", "2026/frame%207.jpg"), object, "Content-Type", "image/png").wantReceipt(t, 201, object); at != "/o/hub/camera/n/2026/frame%207.jpg" {
		t.Errorf("Location %s", at)
	}
	put(in(port, "camera", "2026/frame%207.jpg"), object, "Repr-Digest", reprDigest(object)).wantReceipt(t, 200, object)
	put(in(port, "camera", "2026/frame%207.jpg"), object[1:]).wantRefusal(t, 409, wire.CauseNameConflict)

	// Large ones, which go in parts; chunked, as from a pipe.
	large := random(2, 20<<20)
	put(in(port, "camera", "large"), large).wantReceipt(t, 201, large)
	chunked := ask(http.MethodPut, in(port, "camera", "chunked"), io.MultiReader(bytes.NewReader(large), bytes.NewReader(object)))
	chunked.wantReceipt(t, 201, slices.Concat(large, object))

	nameless := random(3, 5000)
	at := ask(http.MethodPost, in(port, "camera", ""), bytes.NewReader(nameless), "Content-Type", "application/x-www-form-urlencoded").wantReceipt(t, 201, nameless)
	if !strings.HasPrefix(at, "/o/hub/camera/r/") && !strings.HasPrefix(at, "/packs/") {
		t.Errorf("Location of an object without a name: %s", at)
	}

	for _, n := range l.notices(t) {
		if n.Completeness != wire.CompletenessVerified {
			t.Errorf("notice %+v", n)
		}
		if n.Name == "" {
			continue
		}
		digest, _ := l.digestOf(t, n.Record)
		info, err := l.store.Head(t.Context(), n.Key)
		if err != nil {
			t.Fatal(err)
		}
		mediaType := "image/jpeg"
		if n.Name == "2026/frame 7.jpg" {
			mediaType = "image/png"
		}
		if digest != n.Digest || n.Key != wire.NamedKey("hub", "camera", n.Name, 1) || n.MediaType != mediaType || info.ContentType != mediaType {
			t.Errorf("in the bucket: digest %s, %+v; notice %+v", digest, info, n)
		}
	}

	// Refusals, each with what to do.
	put(in(port, "camera", "wrong"), object, "Repr-Digest", reprDigest(object[1:])).wantRefusal(t, 400, wire.CauseDigestMismatch)
	put(in(port, "camera", "wrong"), object, "Content-Digest", reprDigest(object[1:])).wantRefusal(t, 400, wire.CauseDigestMismatch)
	put(in(port, "camera", "wrong"), object, "Repr-Digest", "sha-256=nonsense").wantRefusal(t, 400, wire.CauseBadRequest)
	put(in(port, "camera", "wrong"), object, "Repr-Digest", "junk").wantRefusal(t, 400, wire.CauseBadRequest)
	put(in(port, "camera", "wrong"), object, "Content-Type", "multipart/form-data; boundary=x").wantRefusal(t, 400, wire.CauseBadRequest)
	put(in(port, "camera", "a/..%2fb"), object).wantRefusal(t, 400, wire.CauseBadRequest)
	put(in(port, "camera", strings.Repeat("n", wire.MaxSentName+1)), object).wantRefusal(t, 400, wire.CauseBadRequest)
	put(in(port, "aurora", "x"), object).wantRefusal(t, 403, wire.CauseUnknownSource)
	put(in(port, "nobody", "x"), object).wantRefusal(t, 404, wire.CauseUnknownInstrument)
	put(fmt.Sprintf("http://%s/elsewhere", loopback(port)), object).wantRefusal(t, 404, wire.CauseUnknownInstrument)
	put(in(port, "retired", "x"), object).wantRefusal(t, 410, wire.CauseRetired)
	ask(http.MethodGet, in(port, "camera", "2026/frame%207.jpg"), nil).wantRefusal(t, 405, wire.CauseBadRequest)
	put(in(port, "camera", "wrong"), object).wantReceipt(t, 201, object) // none of that took the name

	l.awaitLedger(t, "camera", wire.StepReceived, func(s wire.Totals) bool {
		return s.Objects == 5 && s.Acknowledged == 5 && s.Unfinished[wire.CauseDuplicate] == 1 && s.Unfinished[wire.CauseNameConflict] == 1 &&
			s.Unfinished[wire.CauseDigestMismatch] == 2 && s.Unfinished[wire.CauseBadRequest] == 5
	})
	for _, step := range []wire.Step{wire.StepStored, wire.StepAnnounced} {
		l.awaitLedger(t, "camera", step, func(s wire.Totals) bool { return s.Objects == 5 })
	}
	if err := g.stop(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// A client that sends more than it may gets the answer while it still sends, and a client that
// waits for "100 Continue" does not send an object that is there already.
func TestHTTPSaysSoEarly(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	e := httpInstrument("camera", port)
	e.MaxObjectSize = 1 << 20
	l.declare(t, e)
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	awaitListening(t, port)
	large := random(1, 8<<20)
	put(in(port, "camera", "a"), large).wantRefusal(t, 413, wire.CauseObjectTooLarge)
	ask(http.MethodPut, in(port, "camera", "a"), io.MultiReader(bytes.NewReader(large))).wantRefusal(t, 413, wire.CauseObjectTooLarge)

	// Nothing takes no name.
	put(in(port, "camera", "a"), nil).wantRefusal(t, 400, wire.CauseEmpty)
	ask(http.MethodPut, in(port, "camera", "a"), io.MultiReader()).wantRefusal(t, 400, wire.CauseEmpty)
	put(in(port, "camera", "a"), random(4, 100), "Content-Encoding", "gzip").wantRefusal(t, 400, wire.CauseBadRequest)

	object := random(2, 500_000)
	put(in(port, "camera", "a"), object).wantReceipt(t, 201, object)
	await(t, "the name is marked", func() (bool, string) {
		kv, err := l.js.KeyValue(t.Context(), wire.NamesBucket(l.site))
		if err != nil {
			t.Fatal(err)
		}
		e, err := kv.Get(t.Context(), wire.NameKey("camera", "a"))
		if err != nil {
			return false, err.Error()
		}
		c, err := wire.Decode[wire.NameClaim](e.Value())
		latest, named := c.Latest()
		return err == nil && named && latest.Announced, fmt.Sprintf("%+v, %v", c, err)
	})
	for digestOf, want := range map[string]int{reprDigest(object): 200, reprDigest(large): 409} {
		sent := &counting{Reader: bytes.NewReader(object)}
		r := ask(http.MethodPut, in(port, "camera", "a"), sent, "Expect", "100-continue", "Repr-Digest", digestOf)
		if r.status != want || sent.n != 0 {
			t.Errorf("the client sent %d bytes, and got %v; want %d", sent.n, r, want)
		}
	}
	// A client that waits with a new object is asked for it.
	other := random(3, 500_000)
	put(in(port, "camera", "b"), other, "Expect", "100-continue", "Repr-Digest", reprDigest(other)).wantReceipt(t, 201, other)
}

type counting struct {
	io.Reader
	n int
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// Raw requests: a digest behind the body, many requests on one connection, and
// bodies that stop.
func TestHTTPOnOneConnection(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	e := httpInstrument("camera", port)
	e.Listeners[0].IdleTimeoutMillis = 300
	l.declare(t, e)
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	conn, answers := net.Conn(nil), (*bufio.Reader)(nil)
	connect := func() {
		conn = dial(t, port)
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(within())
		answers = bufio.NewReader(conn)
	}
	say := func(format string, args ...any) *http.Response {
		t.Helper()
		if _, err := fmt.Fprintf(conn, format, args...); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s %s", resp.Status, b)
		return resp
	}
	const chunked = "PUT /in/camera/%s HTTP/1.1\r\nHost: x\r\n%sTransfer-Encoding: chunked\r\nTrailer: Repr-Digest\r\n\r\n5\r\nframe\r\n0\r\nRepr-Digest: %s\r\n\r\n"
	// A proxy that goes by Content-Length forwards this as the end of the body.
	const hidden = "PUT /in/camera/hidden HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nframe"
	for _, c := range []struct {
		name, header, digest string
		status               int
	}{
		{"a", "", "frame", http.StatusCreated},
		{"b", "", "frama", http.StatusBadRequest},
		{"both", "Content-Length: 200\r\n", "frame", http.StatusCreated},
	} {
		connect()
		r := say(chunked+hidden, c.name, c.header, reprDigest([]byte(c.digest)))
		if rest, err := io.ReadAll(answers); r.StatusCode != c.status || len(rest) > 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("%s: %s, and then %q, %v", c.name, r.Status, rest, err)
		}
	}
	connect()
	for i := range 20 {
		if r := say("PUT /in/camera/many/%d HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nfram%d", i, i%10); r.StatusCode != http.StatusCreated {
			t.Fatal(r.Status)
		}
	}
	if r := say("PUT /in/camera/stops HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\nfram"); r.StatusCode != http.StatusRequestTimeout {
		t.Fatal(r.Status)
	}
	l.awaitLedger(t, "camera", wire.StepReceived, func(s wire.Totals) bool {
		return s.Objects == 22 && s.Unfinished[wire.CauseStalled] == 1 && s.UnfinishedBytes >= 4+5
	})
	cut := dial(t, port)
	fmt.Fprintf(cut, "PUT /in/camera/cut HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\nfram")
	cut.Close()
	l.awaitLedger(t, "camera", wire.StepReceived, func(s wire.Totals) bool { return s.Objects == 22 && s.Unfinished[wire.CauseReset] == 1 })
	if keys := l.keys(t, "o/hub/camera/n/"); len(keys) != 22 {
		t.Errorf("in the bucket: %v", keys)
	}
}

// curl, which a new user has at hand.
func TestCurl(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	l := newLab(t)
	port := testenv.FreePort(t)
	l.declare(t, httpInstrument("camera", port))
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	awaitListening(t, port)
	file := filepath.Join(t.TempDir(), "frame.jpg")
	object := random(1, 3<<20)
	if err := os.WriteFile(file, object, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, args := range [][]string{
		{"-T", file, in(port, "camera", "")}, // the file's name
		{"-T", file, "-H", "Repr-Digest: " + reprDigest(object), in(port, "camera", "other.jpg")},
		{"-T", "-", in(port, "camera", "piped.jpg")},
		{"--data-binary", "@" + file, in(port, "camera", "")},
	} {
		cmd := exec.Command("curl", append([]string{"-sS", "-o", "/dev/null", "-w", "%{http_code}"}, args...)...)
		cmd.Stdin = bytes.NewReader(object)
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "201" {
			t.Errorf("curl %v: %s, %v", args, out, err)
		}
		if n := len(l.notices(t)); n != i+1 {
			t.Errorf("%d notices after %d objects", n, i+1)
		}
	}
}

// Two gateways get the same name at once: with different bytes one object has the name and the
// other sender gets a conflict; with the same bytes both are receipted, and one object is kept.
func TestTwoGatewaysAndOneName(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ports := []int{testenv.FreePort(t), testenv.FreePort(t)}
	e := httpInstrument("camera", ports[0])
	e.Listeners = append(e.Listeners, httpInstrument("camera", ports[1]).Listeners...)
	l.declare(t, e)
	for i := range ports {
		// Both would listen on both ports: each has a range of its own.
		g := l.start(t, gatewayOptions{name: fmt.Sprintf("north-%d", i), flags: []string{"--ports", fmt.Sprintf("%d-%d", ports[i], ports[i])}})
		g.awaitReady()
		awaitListening(t, ports[i])
	}
	const rounds = 40
	objects, conflicts := uint64(0), uint64(0)
	for round := range rounds {
		object, other := random(uint64(round), 3000), random(uint64(1000+round), 3000)
		both := [][]byte{object, object}
		if round%2 == 0 {
			both[1] = other
		}
		var replies [2]reply
		var senders sync.WaitGroup
		for i := range both {
			senders.Go(func() { replies[i] = put(in(ports[i], "camera", fmt.Sprintf("round/%d", round)), both[i]) })
		}
		senders.Wait()
		objects++
		won := 0
		if replies[1].status == 201 {
			won = 1
		}
		replies[won].wantReceipt(t, 201, both[won])
		if round%2 == 0 {
			conflicts++
			replies[1-won].wantRefusal(t, 409, wire.CauseNameConflict)
		} else {
			replies[1-won].wantReceipt(t, 200, object)
		}
		if digest, _ := l.digestOf(t, wire.Record{Key: wire.NamedKey("hub", "camera", fmt.Sprintf("round/%d", round), 1)}); digest != sha256.Sum256(both[won]) {
			t.Fatalf("round %d: in the bucket is %s", round, digest)
		}
	}
	if n := len(l.notices(t)); n != rounds {
		t.Errorf("%d notices of %d objects", n, rounds)
	}
	l.awaitLedger(t, "camera", wire.StepReceived, func(s wire.Totals) bool {
		return s.Objects == objects && s.Unfinished[wire.CauseNameConflict] == conflicts && s.Unfinished[wire.CauseDuplicate] == rounds-conflicts
	})
	for _, step := range []wire.Step{wire.StepStored, wire.StepAnnounced} {
		l.awaitLedger(t, "camera", step, func(s wire.Totals) bool { return s.Objects == objects })
	}
}

// Versions, where the instrument keeps them.
func TestVersions(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	e := httpInstrument("camera", port)
	e.Versions = wire.VersionsKeep
	l.declare(t, e)
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	awaitListening(t, port)
	url := in(port, "camera", "frame.jpg")
	want := []string{"/o/hub/camera/n/frame.jpg", "/o/hub/camera/v/2/frame.jpg", "/o/hub/camera/v/3/frame.jpg"}
	for i, location := range want {
		object := random(uint64(i), 4000)
		if at := put(url, object).wantReceipt(t, 201, object); at != location {
			t.Errorf("version %d is at %s", i+1, at)
		}
	}
	// Each of them is known again.
	for i, location := range want {
		object := random(uint64(i), 4000)
		if at := put(url, object).wantReceipt(t, 200, object); at != location {
			t.Errorf("version %d is known at %s", i+1, at)
		}
	}
	notices := l.notices(t)
	if len(notices) != 3 || notices[0].Supersedes != "" || notices[2].Supersedes != notices[1].ID || notices[2].Version != 3 || notices[0].Version != 0 {
		t.Errorf("notices %+v", notices)
	}
}
