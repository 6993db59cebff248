// SPDX-License-Identifier: Apache-2.0

// Package replica keeps, for "acknowledge: Replicated", copies of what waits in
// the spools of a pool's other gateways, and has its own copied to one of them.
//
// An owner sends an object and its notice to one peer on another node (Peers). The peer answers
// once both are fsynced in a log of its own, which has the spool's format (Log). When the object is
// archived the owner says so, and the peer forgets it. If the owner says nothing of an object for
// long, and is silent itself, the peer drains the object: create-only, with the owner's notice, so
// that it makes no difference which comes first, and it is not counted twice.
//
// Both ends speak HTTP/1.1 over TLS with certificates that only the pool has. It
// is not HTTP/2, whose streams share a window: objects that wait for memory would
// hold up those that have some.
//
//	PUT  /v1/copies/<owner>  4 bytes of length, the notice as JSON, the object's bytes
//	POST /v1/done/<owner>    a JSON list of the ids that are archived
package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/substorm/substorm/internal/wire"
)

const (
	copiesPath = "/v1/copies/"
	donePath   = "/v1/done/"
	// maxNotice is the size of a notice in bytes; names are bounded far below.
	maxNotice = 64 << 10
	// maxDone ids are said to be archived in one request.
	maxDone = 1000
)

// ErrNoPeer says that no other gateway takes a copy just now.
var ErrNoPeer = errors.New("no gateway on another node takes copies")

// label is what a pod may be called: it becomes a folder.
var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// writeNotice writes what stands before an object's bytes.
func writeNotice(n wire.Notice) ([]byte, error) {
	b, err := wire.Encode(n)
	if err != nil {
		return nil, err
	}
	if len(b) > maxNotice {
		return nil, fmt.Errorf("notice of %s has %d bytes", n.Key, len(b))
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...), nil
}

// readNotice reads what writeNotice wrote. Errors: wire.ErrMalformed,
// wire.ErrNewerFormat, or the reader's.
func readNotice(r io.Reader) (wire.Notice, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return wire.Notice{}, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxNotice {
		return wire.Notice{}, fmt.Errorf("a notice of %d bytes: %w", size, wire.ErrMalformed)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r, b); err != nil {
		return wire.Notice{}, err
	}
	return wire.Decode[wire.Notice](b)
}
