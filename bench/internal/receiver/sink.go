// SPDX-License-Identifier: Apache-2.0

package receiver

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/substorm/substorm/internal/wire"
)

const (
	// packet is what the old RTEMP read at a time: the payload of an Ethernet frame.
	packet = 1448
	// static is what the study's fix sets aside for each stream.
	static = 8 << 20
	// hashBuffer is as large as a slab of ours.
	hashBuffer = 256 << 10
)

// Done is what a sink says that computes no digest.
const Done = "done"

// sinks receive one object and return what they answer.
var sinks = map[Kind]func(net.Conn) (string, error){Old: old, Static: fix, Hash: hash}

// serveSink answers each connection until ctx ends.
func serveSink(ctx context.Context, o Options, ready func(string)) error {
	receive, ok := sinks[o.Kind]
	if !ok {
		return fmt.Errorf("no receiver is called %q", o.Kind)
	}
	listener, err := net.Listen("tcp", loopback(o.Port))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	ready(listener.Addr().String())
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		go func() {
			defer conn.Close()
			if answer, err := receive(conn); err == nil {
				_, _ = io.WriteString(conn, answer)
			}
		}()
	}
}

// old copies all that it has to a larger place for each packet.
func old(conn net.Conn) (string, error) {
	var object []byte
	buffer := make([]byte, packet)
	for {
		n, err := conn.Read(buffer)
		larger := make([]byte, len(object)+n)
		copy(larger, object)
		copy(larger[len(object):], buffer[:n])
		object = larger
		if errors.Is(err, io.EOF) {
			return fmt.Sprintf("%s bytes=%d\n", Done, len(object)), nil
		}
		if err != nil {
			return "", err
		}
	}
}

// fix sets 8 MB aside, whatever comes.
func fix(conn net.Conn) (string, error) {
	object := make([]byte, static)
	n := 0
	for {
		if n == len(object) { // a larger one than the study has
			object = append(object, make([]byte, static)...)
		}
		k, err := conn.Read(object[n:])
		n += k
		if errors.Is(err, io.EOF) {
			return fmt.Sprintf("%s bytes=%d\n", Done, n), nil
		}
		if err != nil {
			return "", err
		}
	}
}

var hashBuffers = sync.Pool{New: func() any { b := make([]byte, hashBuffer); return &b }}

// hash keeps nothing.
func hash(conn net.Conn) (string, error) {
	buffer := hashBuffers.Get().(*[]byte)
	defer hashBuffers.Put(buffer)
	digest, total := sha256.New(), int64(0)
	for {
		n, err := conn.Read(*buffer)
		digest.Write((*buffer)[:n])
		total += int64(n)
		if errors.Is(err, io.EOF) {
			return wire.Receipt{Digest: wire.Digest(digest.Sum(nil)), Bytes: total}.Line(), nil
		}
		if err != nil {
			return "", err
		}
	}
}
