// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/substorm/substorm/ingest-gateway/intake"
)

// clientHello is what crypto/tls sends first.
func clientHello(t *testing.T) []byte {
	t.Helper()
	client, server := net.Pipe()
	t.Cleanup(func() { server.Close(); client.Close() })
	go func() { _ = tls.Client(client, &tls.Config{ServerName: "gateway.example"}).Handshake() }()
	head := make([]byte, 300)
	n, err := server.Read(head)
	if err != nil {
		t.Fatal(err)
	}
	return head[:n]
}

// Requests of HTTP and TLS hellos are recognized, in whichever pieces they come; what an instrument may send is not,
// though it begins alike.
func TestRecognize(t *testing.T) {
	hello := clientHello(t)
	for name, c := range map[string]struct {
		sent []byte
		want error
	}{
		"a form":                       {[]byte("POST /in/x/ HTTP/1.1\r\nHost: a\r\n\r\nx"), errHTTP},
		"a browser":                    {[]byte("GET / HTTP/1.1\r\n"), errHTTP},
		"an uploader":                  {[]byte("MKCOL /2026/ HTTP/1.1\r\n"), errHTTP},
		"line ends of LF":              {[]byte("GET / HTTP/1.0\n"), errHTTP},
		"HTTP/2":                       {[]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), errHTTP},
		"a target with blanks":         {[]byte("GET /a b HTTP/1.1\r\n"), errHTTP},
		"a target with a letter":       {[]byte("PUT /nordlys/Tromsø HTTP/1.1\r\n"), errHTTP},
		"a target in Latin-1":          {[]byte("GET /\xe9 HTTP/1.1\r\n"), errHTTP},
		"an empty line before it":      {[]byte("\r\nPOST / HTTP/1.1\r\n"), errHTTP},
		"empty lines of LF before it":  {[]byte("\n\nPOST / HTTP/1.1\n"), errHTTP},
		"lower case":                   {[]byte("get / HTTP/1.1\r\n"), errHTTP},
		"lower case throughout":        {[]byte("get / http/1.1\r\n"), errHTTP},
		"a method of WebDAV":           {[]byte("LOCK / HTTP/1.1\r\n"), errHTTP},
		"a method of versions":         {[]byte("VERSION-CONTROL / HTTP/1.1\r\n"), errHTTP},
		"a blank behind it":            {[]byte("REPORT / HTTP/1.1 \r\n"), errHTTP},
		"a long line in Latin-1":       {[]byte("get /" + strings.Repeat("\xe9", 2*maxFirstLine) + " HTTP/1.1\r\n"), errHTTP},
		"a line without a method":      {[]byte("/ HTTP/1.1\r\n"), nil},
		"an answer":                    {[]byte("HTTP/1.1 200 OK\r\n"), nil},
		"a line of values":             {[]byte("MAG 12.3 45.6\r\nGET / HTTP/1.1\r\n"), nil},
		"bytes behind a word":          {[]byte("RUN \x00\x01 HTTP/1.1\r\n"), nil},
		"TLS":                          {hello, errTLS},
		"a line of text":               {[]byte("GET the northern camera going\nHTTP/1.1\n"), nil},
		"a request of RTSP":            {[]byte("OPTIONS rtsp://camera RTSP/1.0\r\n"), nil},
		"a line that is long":          {[]byte("GET /" + strings.Repeat("a", 2*maxFirstLine) + " HTTP/1.1\r\n"), errHTTP},
		"a long line of text":          {[]byte("GET /" + strings.Repeat("a ", maxFirstLine) + "\n"), nil},
		"HTTP, but later":              {[]byte("frame\nGET / HTTP/1.1\r\n"), nil},
		"a server's access log":        {[]byte(`192.0.2.1 - - "GET / HTTP/1.1" 200` + "\n"), nil},
		"numbers that begin like TLS":  {[]byte{22, 3, 1, 2, 0, 1, 9, 9, 9, 9, 9, 9}, nil},
		"a length that no hello has":   {[]byte{22, 3, 1, 0xff, 0xff, 1, 0, 0xff, 0xfb, 3, 3}, nil},
		"lengths that do not fit":      {[]byte{22, 3, 1, 2, 0, 1, 0, 0, 9, 3, 3}, nil},
		"an object of sixteen letters": {[]byte("POSTPOSTPOSTPOST"), nil},
		"one byte":                     {[]byte("G"), nil},
	} {
		for size := range len(c.sent) {
			r := &recognizer{head: []byte{}}
			for piece := range slices.Chunk(c.sent, size+1) {
				r.see(piece)
			}
			if !errors.Is(r.found, c.want) {
				t.Fatalf("%s, in pieces of %d bytes: %v, want %v", name, size+1, r.found, c.want)
			}
			if len(r.head) > maxFirstLine {
				t.Fatalf("%s: %d bytes are kept", name, len(r.head))
			}
		}
	}
}

// An instrument that declares that it sends such bytes is not asked.
func TestRecognizeNotWhatIsDeclared(t *testing.T) {
	for want, listener := range map[bool][]*intake.Listener{
		false: {
			{Instrument: &intake.Instrument{MediaType: "message/http"}},
			{Instrument: &intake.Instrument{MediaType: "application/http; msgtype=request"}},
			{Instrument: &intake.Instrument{}, Expect: &intake.Expect{Magic: []byte("POST ")}},
		},
		true: {
			{Instrument: &intake.Instrument{MediaType: "text/plain"}},
			{Instrument: &intake.Instrument{}, Expect: &intake.Expect{MinSize: 3}},
			{Instrument: &intake.Instrument{}, Expect: &intake.Expect{Magic: []byte("P5")}},
			{Instrument: &intake.Instrument{}, Expect: &intake.Expect{Magic: []byte("SIMPLE")}},
		},
	} {
		for _, l := range listener {
			if _, got := recognize(nil, l).(*recognizer); got != want {
				t.Errorf("%+v of %q: recognized %v", l.Expect, l.Instrument.MediaType, got)
			}
		}
	}
}
