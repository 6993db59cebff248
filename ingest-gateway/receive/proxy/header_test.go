// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/pires/go-proxyproto"
)

func written(t testing.TB, change func(*proxyproto.Header)) []byte {
	t.Helper()
	h := proxyproto.HeaderProxyFromAddrs(2, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 40001}, &net.TCPAddr{IP: net.IPv4(198, 51, 100, 1), Port: 30101})
	if change != nil {
		change(h)
	}
	b, err := h.Format()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReadHeader(t *testing.T) {
	want := header{source: netip.MustParseAddrPort("192.0.2.7:40001"), destination: netip.MustParseAddrPort("198.51.100.1:30101")}
	tlvs := func(h *proxyproto.Header) {
		if err := h.SetTLVs([]proxyproto.TLV{{Type: proxyproto.PP2_TYPE_NOOP, Value: make([]byte, 300)}}); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		bytes []byte
		want  header
	}{
		"IPv4":      {written(t, nil), want},
		"with TLVs": {written(t, tlvs), want},
		"local":     {written(t, func(h *proxyproto.Header) { h.Command = proxyproto.LOCAL; h.TransportProtocol = proxyproto.UNSPEC }), header{local: true}},
		"IPv6": {written(t, func(h *proxyproto.Header) {
			h.TransportProtocol = proxyproto.TCPv6
			h.SourceAddr, h.DestinationAddr = &net.TCPAddr{IP: net.ParseIP("2001:db8::7"), Port: 1}, &net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 30102}
		}), header{source: netip.MustParseAddrPort("[2001:db8::7]:1"), destination: netip.MustParseAddrPort("[2001:db8::1]:30102")}},
	} {
		t.Run(name, func(t *testing.T) {
			in := bytes.NewReader(append(test.bytes, "object"...))
			got, err := readHeader(in)
			if err != nil || got.local != test.want.local || got.source.Port() != test.want.source.Port() ||
				got.source.Addr().Unmap() != test.want.source.Addr() || got.destination.Port() != test.want.destination.Port() {
				t.Errorf("got %+v, %v; want %+v", got, err, test.want)
			}
			if rest, _ := io.ReadAll(in); string(rest) != "object" {
				t.Errorf("%q follows the header", rest)
			}
		})
	}
	for name, b := range map[string][]byte{
		"nothing":     nil,
		"version 1":   []byte("PROXY TCP4 192.0.2.7 198.51.100.1 40001 30101\r\nobject"),
		"garbage":     bytes.Repeat([]byte{0xff}, 100),
		"half of it":  written(t, nil)[:20],
		"a signature": signature,
		"UDP": written(t, func(h *proxyproto.Header) {
			h.TransportProtocol = proxyproto.UDPv4
			h.SourceAddr, h.DestinationAddr = &net.UDPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 1}, &net.UDPAddr{IP: net.IPv4(192, 0, 2, 8), Port: 2}
		}),
		"no port": written(t, func(h *proxyproto.Header) { h.DestinationAddr = &net.TCPAddr{IP: net.IPv4(198, 51, 100, 1)} }),
		"64 KiB":  append(append(bytes.Clone(signature), 0x21, 0x11, 0xff, 0xff), make([]byte, 1<<16)...),
	} {
		if got, err := readHeader(bytes.NewReader(b)); err == nil {
			t.Errorf("%s was read as %+v", name, got)
		}
	}
}

// FuzzReadHeader: whatever comes, no more than the header is read, and what is
// accepted has addresses.
func FuzzReadHeader(f *testing.F) {
	f.Add(written(f, nil))
	f.Add(written(f, func(h *proxyproto.Header) { h.Command = proxyproto.LOCAL; h.TransportProtocol = proxyproto.UNSPEC }))
	f.Add([]byte("PROXY TCP4 192.0.2.7 198.51.100.1 40001 30101\r\n"))
	f.Add(append(bytes.Clone(signature), 0x21, 0x11, 0, 12))
	f.Fuzz(func(t *testing.T, b []byte) {
		in := bytes.NewReader(b)
		h, err := readHeader(in)
		read := len(b) - in.Len()
		if read > fixedSize+maxRest {
			t.Errorf("%d bytes were read", read)
		}
		if err != nil {
			return
		}
		if want := fixedSize + int(b[14])<<8 + int(b[15]); read != want {
			t.Errorf("%d bytes were read of a header of %d", read, want)
		}
		if !h.local && (!h.source.IsValid() || h.destination.Port() == 0) {
			t.Errorf("accepted without addresses: %+v", h)
		}
	})
}
