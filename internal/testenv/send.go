// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// SendObject sends an object over raw TCP to a port on 127.0.0.1 and returns nil for its
// receipt alone.
func SendObject(port int, object []byte) error {
	conn, err := net.DialTimeout("tcp", Loopback(port), 5*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Write(object); err != nil {
		return err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	line, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	got, err := wire.ParseReceipt(string(line))
	if want := (wire.Receipt{Digest: sha256.Sum256(object), Bytes: int64(len(object))}); err != nil || got != want {
		return fmt.Errorf("receipt %q: %v", line, err)
	}
	return nil
}
