// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/pires/go-proxyproto"
)

// Sizes in bytes, of
// https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt section 2.2.
const (
	signatureSize = 12
	fixedSize     = 16
	// maxRest bounds what follows the fixed part: addresses, and what a proxy adds
	// to them, client certificates perhaps.
	maxRest = 16 << 10
)

var signature = []byte("\r\n\r\n\x00\r\nQUIT\n")

var errNoHeader = errors.New("the connection does not begin with a PROXY version 2 header")

// header says for whom a proxy speaks.
type header struct {
	// local: the proxy speaks for itself, as to see whether we are there.
	local               bool
	source, destination netip.AddrPort
}

// readHeader reads a header and not a byte more: what follows is an object's, and
// goes from the socket to its place.
func readHeader(r io.Reader) (header, error) {
	fixed := make([]byte, fixedSize)
	if _, err := io.ReadFull(r, fixed[:signatureSize]); err != nil {
		return header{}, fmt.Errorf("%w: %w", errNoHeader, err)
	}
	if !bytes.Equal(fixed[:signatureSize], signature) {
		return header{}, errNoHeader
	}
	if _, err := io.ReadFull(r, fixed[signatureSize:]); err != nil {
		return header{}, fmt.Errorf("%w: %w", errNoHeader, err)
	}
	length := int(binary.BigEndian.Uint16(fixed[fixedSize-2:]))
	if length > maxRest {
		return header{}, fmt.Errorf("the PROXY version 2 header has %d bytes, more than the limit of %d", length, maxRest)
	}
	whole := make([]byte, fixedSize+length)
	copy(whole, fixed)
	if _, err := io.ReadFull(r, whole[fixedSize:]); err != nil {
		return header{}, fmt.Errorf("%w: %w", errNoHeader, err)
	}
	return parse(whole)
}

// parse reads a whole header.
func parse(whole []byte) (header, error) {
	h, err := proxyproto.Read(bufio.NewReader(bytes.NewReader(whole)))
	if err != nil {
		return header{}, fmt.Errorf("PROXY header: %w", err)
	}
	if h.Version != 2 {
		return header{}, errNoHeader
	}
	if h.Command.IsLocal() {
		return header{local: true}, nil
	}
	source, destination, ok := h.TCPAddrs()
	if !ok {
		return header{}, errors.New("the PROXY header is not that of a TCP connection")
	}
	got := header{source: source.AddrPort(), destination: destination.AddrPort()}
	if !got.source.Addr().IsValid() || got.destination.Port() == 0 {
		return header{}, errors.New("PROXY header without addresses")
	}
	return got, nil
}
