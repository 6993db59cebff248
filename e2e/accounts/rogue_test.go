// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
)

// rogue links to a hub as a leaf's server does, and sends what no server would. The owner of a leaf has its credentials,
// and need not run a server with them that refuses what clients may not send.
type rogue struct {
	t     *testing.T
	conn  net.Conn
	lines *bufio.Scanner
}

func linkRogue(t *testing.T, address, creds string) *rogue {
	t.Helper()
	file, err := os.ReadFile(creds)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.ParseDecoratedJWT(file)
	if err != nil {
		t.Fatal(err)
	}
	key, err := jwt.ParseDecoratedUserNKey(file)
	if err != nil {
		t.Fatal(err)
	}
	r := &rogue{t: t}
	if r.conn, err = net.Dial("tcp", address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.conn.Close() })
	r.lines = bufio.NewScanner(r.conn)
	r.lines.Buffer(nil, 1<<20)
	text := strings.TrimPrefix(r.await("INFO "), "INFO ")
	var info struct {
		Nonce string `json:"nonce"`
	}
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	signature, err := key.Sign([]byte(info.Nonce))
	if err != nil {
		t.Fatal(err)
	}
	connect, err := json.Marshal(map[string]any{"jwt": token, "sig": base64.RawURLEncoding.EncodeToString(signature), "headers": true,
		"name": "rogue", "server_id": "ROGUE", "server_name": "rogue", "domain": leaf, "jetstream": true, "version": "2.15.2"})
	if err != nil {
		t.Fatal(err)
	}
	r.send(fmt.Sprintf("CONNECT %s", connect))
	return r
}

// send sends a message and waits until the hub has read it.
func (r *rogue) send(message string) {
	r.t.Helper()
	fmt.Fprintf(r.conn, "%s\r\nPING\r\n", message)
	r.await("PONG")
}

// await returns the next line that begins so.
func (r *rogue) await(prefix string) string {
	r.t.Helper()
	for r.lines.Scan() {
		line := r.lines.Text()
		switch {
		case strings.HasPrefix(line, prefix):
			return line
		case line == "PING":
			fmt.Fprint(r.conn, "PONG\r\n")
		case strings.HasPrefix(line, "-ERR"):
			r.t.Fatalf("the hub: %s", line)
		}
	}
	r.t.Fatalf("the hub closed the connection: %v", r.lines.Err())
	return ""
}
