// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// httpInstrument is an entry with one listener over HTTP.
func httpInstrument(name string, port int) wire.InstrumentEntry {
	e := tcpInstrument(name, port)
	e.Listeners = []wire.ListenerEntry{{Protocol: wire.ProtocolHTTP, Port: uint16(port),
		IdleTimeoutMillis: 300_000, MaxAgeMillis: 3_600_000, UploadExpiryMillis: 3_600_000}}
	return e
}

// reply is what an HTTP client saw.
type reply struct {
	status  int
	header  http.Header
	problem struct {
		Title, Detail string
		Status        int
		Cause         wire.Cause
	}
	text, proto string
	err         error
}

func (r reply) String() string {
	return fmt.Sprintf("%d %v %s %v", r.status, r.header, r.text, r.err)
}

// client takes a connection of its own for each request.
var client = &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: patience}}

// ask sends a request; header has names and values in turn.
func ask(method, url string, body io.Reader, header ...string) reply {
	return askBy(client, method, url, body, header...)
}

func askBy(client *http.Client, method, url string, body io.Reader, header ...string) reply {
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return reply{err: err}
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	req.Host = req.Header.Get("Host") // empty: the URL's
	resp, err := client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	r := reply{status: resp.StatusCode, header: resp.Header, proto: resp.Proto}
	b, err := io.ReadAll(resp.Body)
	r.text, r.err = string(b), err
	if resp.Header.Get("Content-Type") == "application/problem+json" && len(b) > 0 {
		if err := json.Unmarshal(b, &r.problem); err != nil {
			r.err = err
		}
	}
	return r
}

func in(port int, instrument, name string) string {
	return fmt.Sprintf("http://%s/in/%s/%s", loopback(port), instrument, name)
}

func put(url string, object []byte, header ...string) reply {
	return ask(http.MethodPut, url, bytes.NewReader(object), header...)
}

func reprDigest(object []byte) string {
	sum := sha256.Sum256(object)
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// wantReceipt fails where a reply is not the receipt of an object.
func (r reply) wantReceipt(t *testing.T, status int, object []byte) string {
	t.Helper()
	etag := `"` + wire.Digest(sha256.Sum256(object)).String() + `"`
	if r.err != nil || r.status != status || r.header.Get("Repr-Digest") != reprDigest(object) || r.header.Get("ETag") != etag {
		t.Fatalf("the reply is no receipt %d of %s: %v", status, etag, r)
	}
	return r.header.Get("Location")
}

// wantRefusal fails where a reply does not refuse for a cause.
func (r reply) wantRefusal(t *testing.T, status int, cause wire.Cause) {
	t.Helper()
	if r.err != nil || r.status != status || r.problem.Cause != cause || r.problem.Status != status || r.problem.Detail == "" || r.problem.Title == "" {
		t.Fatalf("the reply is no refusal %d for %s: %v", status, cause, r)
	}
}

// awaitListening waits until a port answers HTTP.
func awaitListening(t *testing.T, port int) {
	t.Helper()
	dial(t, port).Close()
}

// within is a client's patience for what it sends by hand.
func within() time.Time { return time.Now().Add(patience) }
