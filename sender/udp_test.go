// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sender

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// listener is a real UDP socket that keeps what it gets.
func udpListener(t *testing.T) (*net.UDPConn, string) {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetReadBuffer(4 << 20)
	return c, c.LocalAddr().String()
}

func receiveDatagrams(t *testing.T, c *net.UDPConn, n int) (texts []string, from netip.AddrPort) {
	t.Helper()
	buffer := make([]byte, 1<<16)
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	for range n {
		size, source, err := c.ReadFromUDPAddrPort(buffer)
		if err != nil {
			t.Fatalf("after %d of %d datagrams: %v", len(texts), n, err)
		}
		texts, from = append(texts, string(buffer[:size])), source
	}
	return texts, from
}

func TestDatagrams(t *testing.T) {
	c, address := udpListener(t)
	const n = 2000
	var lines, want strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "48123.%d -12.9\r\n", i)
		fmt.Fprintf(&want, "48123.%d -12.9|", i)
	}
	cfg := config(t, "-")
	cfg.Addresses, cfg.UDP, cfg.Lines, cfg.Stdin, cfg.From = []string{address}, true, true, strings.NewReader(lines.String()), netip.MustParseAddr("127.0.0.3")
	cfg.Rate = 4000
	done := make(chan error, 1)
	go func() { done <- Run(t.Context(), cfg) }()
	got, from := receiveDatagrams(t, c, n)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if strings.Join(got, "|")+"|" != want.String() {
		t.Error("other datagrams arrived than were sent")
	}
	if from.Addr() != cfg.From {
		t.Errorf("sent from %v, want %v", from, cfg.From)
	}
	results := readReport(t, cfg)
	if len(results) != n {
		t.Fatalf("%d lines of report, want %d", len(results), n)
	}
	for _, r := range results {
		if r.Outcome != SentWithoutReceipt || r.SentAt == nil || r.ReceiptedAt != nil || r.Server != address || r.Tries != 1 {
			t.Fatalf("report: %+v", r)
		}
	}
	if said := cfg.Messages.(*bytes.Buffer).String(); !strings.Contains(said, "UDP has no receipt") || !strings.Contains(said, "sent 2000 datagrams") {
		t.Errorf("said %q", said)
	}
}

func TestFilesAsDatagrams(t *testing.T) {
	c, address := udpListener(t)
	dir := t.TempDir()
	for name, size := range map[string]int{"1-small": 10, "2-largest": maxDatagram, "3-too-large": maxDatagram + 1, "4-after": 20} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := config(t, dir)
	cfg.Addresses, cfg.UDP, cfg.GiveUpAfter = []string{address}, true, time.Hour
	err := Run(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "3-too-large") || !strings.Contains(err.Error(), "65507") {
		t.Errorf("got %v", err)
	}
	got, _ := receiveDatagrams(t, c, 3)
	if len(got[0]) != 10 || len(got[1]) != maxDatagram || len(got[2]) != 20 {
		t.Errorf("datagrams of %d, %d, %d bytes", len(got[0]), len(got[1]), len(got[2]))
	}
}

// TestNobodyListens: the sender reports a host's notice that no process listens, also after the
// only datagram.
func TestNobodyListens(t *testing.T) {
	closed, address := udpListener(t)
	closed.Close()
	cfg := config(t, randomFile(t, 10))
	cfg.Addresses, cfg.UDP = []string{address}, true
	if err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "no process listens") {
		t.Errorf("got %v", err)
	}
}

// TestDatagramsTurn: if no process listens at an address, the next server is used.
func TestDatagramsTurn(t *testing.T) {
	closed, dead := udpListener(t)
	closed.Close()
	c, address := udpListener(t)
	const n = 200
	cfg := config(t, "-")
	cfg.Addresses, cfg.UDP, cfg.Lines, cfg.Stdin = []string{dead, address}, true, true, strings.NewReader(strings.Repeat("x\n", n))
	cfg.Rate = 2000
	if err := Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	lost := 0
	for _, r := range readReport(t, cfg) {
		if r.Server == dead {
			lost++
		}
	}
	if lost > 10 {
		t.Errorf("%d datagrams went to a host where nobody listens", lost)
	}
	receiveDatagrams(t, c, n-lost)
}
