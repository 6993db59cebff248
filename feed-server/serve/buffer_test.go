// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/feed-server/endpoint"
)

// The kernel's buffer for a consumer stays small. For a download it is as large as the path needs,
// and small for a client that does not read.
func TestSendBuffers(t *testing.T) {
	t.Parallel()
	held := make(chan int, 1)
	s, _ := newServer(t, func(c *Config) {
		c.Others = map[string]http.HandlerFunc{
			"/small": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") },
			"/large": func(w http.ResponseWriter, _ *http.Request) { held <- fill(w) },
		}
	})
	for path, fixed := range map[string]bool{"/small": false, "/feeds/all/events?consumer=events": true, "/feeds/all/ws?consumer=ws": true} {
		client := dial(t, s, path)
		size, unsent := option(t, client, unix.SOL_SOCKET, unix.SO_SNDBUF), option(t, client, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT)
		if (size == 2*endpoint.SendBuffer) != fixed { // the kernel doubles what is asked for, socket(7)
			t.Errorf("%s: the send buffer has %d bytes", path, size)
		}
		if unsent != endpoint.SendBuffer {
			t.Errorf("%s: %d bytes may wait to be sent", path, unsent)
		}
	}
	dial(t, s, "/large") // and does not read
	if n := <-held; n > 4*endpoint.SendBuffer {
		t.Errorf("the kernel holds %d bytes of a download for a client that does not read", n)
	}
}

// fill writes until the client takes nothing any more, and returns how much that was.
func fill(w http.ResponseWriter) (bytes int) {
	control, piece := http.NewResponseController(w), make([]byte, 16<<10)
	for {
		_ = control.SetWriteDeadline(time.Now().Add(2 * time.Second))
		n, err := w.Write(piece)
		if bytes += n; err != nil {
			return bytes
		}
	}
}

// dial asks for something, reads the head of the answer, and stays.
func dial(t *testing.T, s *Server, path string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	consumer := path[strings.LastIndexByte(path, '=')+1:]
	_, err = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: feeds\r\nAuthorization: Bearer "+consumer+"-token\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%s: %s", path, resp.Status)
	}
	return c.(*net.TCPConn)
}

// option returns one of the server's end of a connection: it is in this process.
func option(t *testing.T, client net.Conn, level, name int) int {
	t.Helper()
	port := client.LocalAddr().(*net.TCPAddr).Port
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for fd := range len(open) + 1024 {
		peer, err := unix.Getpeername(fd)
		if is, tcp := peer.(*unix.SockaddrInet4); err != nil || !tcp || is.Port != port {
			continue
		}
		value, err := unix.GetsockoptInt(fd, level, name)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	t.Fatalf("nothing here is connected to %v", client.LocalAddr())
	return 0
}
