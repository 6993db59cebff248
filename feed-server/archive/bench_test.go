// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/substorm/substorm/feed-server/endpoint"
)

// BenchmarkAsk measures what one request costs, over loopback and one connection for
// each processor.
func BenchmarkAsk(b *testing.B) {
	l := newLab(b, func(c *config) { c.endpoint.Limits.Person = endpoint.Rate{PerSecond: 1e9, Burst: 1e9} })
	r := l.put(camera, "hot.jpg", noise(200_000))
	server := httptest.NewServer(l.endpoints) // without a log
	defer server.Close()
	for name, request := range map[string]string{
		"unchanged":  "GET /archive/allsky-1/hot.jpg HTTP/1.1\r\nHost: x\r\nUser-Agent: Mozilla/5.0\r\nIf-None-Match: " + etag(r.Digest) + "\r\n\r\n",
		"HEAD":       "HEAD /archive/allsky-1/hot.jpg HTTP/1.1\r\nHost: x\r\nUser-Agent: Mozilla/5.0\r\n\r\n",
		"hot 200 kB": "GET /archive/allsky-1/hot.jpg HTTP/1.1\r\nHost: x\r\nUser-Agent: Mozilla/5.0\r\n\r\n",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				conn, err := net.Dial("tcp", server.Listener.Addr().String())
				if err != nil {
					b.Error(err)
					return
				}
				defer conn.Close()
				in := bufio.NewReaderSize(conn, 64<<10)
				for p.Next() {
					if err := exchange(conn, in, request); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// exchange makes one request and reads its answer.
func exchange(conn net.Conn, in *bufio.Reader, request string) error {
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		return err
	}
	if resp.StatusCode >= 400 {
		return fmt.Errorf("%s", resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
