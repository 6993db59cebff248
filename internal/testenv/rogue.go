// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
)

// RogueLink is a link to a hub that a Rogue makes.
type RogueLink struct {
	// Address of the hub's port for leaf links.
	Address string
	// Creds are a user's, as a credentials file has them.
	Creds []byte
	// TLS is nil where the hub's port has none.
	TLS *tls.Config
	// Domain is the JetStream domain of the leaf.
	Domain string
	// IsHub has the rogue say that it is the hub. The server then keeps the link when it refuses a message.
	IsHub bool
}

// Rogue links to a hub as a leaf's server does, and sends what no server would. The owner of a leaf has its credentials,
// and need not run a server with them that refuses what clients may not send.
type Rogue struct {
	t     testing.TB
	conn  net.Conn
	lines *bufio.Reader
	// Heard is what the hub has sent on subjects that the rogue listens to.
	Heard []RogueMessage
}

// RogueMessage is a message that a hub sends to a leaf.
type RogueMessage struct {
	Subject, Reply string
	Payload        []byte
}

// Link connects; the link ends with the test.
func (l RogueLink) Link(t testing.TB) *Rogue {
	t.Helper()
	token := must(jwt.ParseDecoratedJWT(l.Creds))(t)
	key := must(jwt.ParseDecoratedUserNKey(l.Creds))(t)
	r := &Rogue{t: t, conn: must(net.Dial("tcp", l.Address))(t)}
	t.Cleanup(r.Close)
	r.lines = bufio.NewReader(r.conn)
	text := strings.TrimPrefix(must(r.await("INFO "))(t), "INFO ")
	var info struct {
		Nonce string `json:"nonce"`
	}
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if l.TLS != nil {
		r.conn = tls.Client(r.conn, l.TLS)
		r.lines = bufio.NewReader(r.conn)
	}
	signature := must(key.Sign([]byte(info.Nonce)))(t)
	r.Send("CONNECT " + string(must(json.Marshal(map[string]any{"jwt": token, "sig": base64.RawURLEncoding.EncodeToString(signature), "headers": true,
		"name": "rogue", "server_id": "ROGUE", "server_name": "rogue", "domain": l.Domain, "jetstream": true, "is_hub": l.IsHub, "version": "2.15.2"}))(t)))
	return r
}

// Close ends the link.
func (r *Rogue) Close() { r.conn.Close() }

// Send sends a message and waits until the hub has read it.
func (r *Rogue) Send(message string) {
	r.t.Helper()
	if err := r.Try(message); err != nil {
		r.t.Fatal(err)
	}
}

// Try is Send of what the hub may refuse. Then the link is over.
func (r *Rogue) Try(message string) error {
	if _, err := fmt.Fprintf(r.conn, "%s\r\n", message); err != nil {
		return err
	}
	return r.Listen()
}

// Listen waits until the hub answers, and so has sent all that it had to send before.
func (r *Rogue) Listen() error {
	if _, err := fmt.Fprint(r.conn, "PING\r\n"); err != nil {
		return err
	}
	_, err := r.await("PONG")
	return err
}

// await returns the next line that begins so.
func (r *Rogue) await(prefix string) (string, error) {
	if err := r.conn.SetReadDeadline(time.Now().Add(Patience)); err != nil {
		return "", err
	}
	for {
		line, err := r.lines.ReadString('\n')
		if err != nil {
			return "", fmt.Errorf("the hub closed the connection: %w", err)
		}
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, prefix):
			return line, nil
		case line == "PING":
			_, err = fmt.Fprint(r.conn, "PONG\r\n")
		case strings.HasPrefix(line, "LMSG "), strings.HasPrefix(line, "HMSG "):
			err = r.hear(strings.Fields(line))
		case strings.HasPrefix(line, "-ERR"):
			err = fmt.Errorf("the hub: %s", line)
		}
		if err != nil {
			return "", err
		}
	}
}

// hear reads a message. Its line has the subject, perhaps a subject for the answer, the header's size where it has a
// header, and the size of all.
func (r *Rogue) hear(line []string) error {
	sizes := 1
	if line[0] == "HMSG" {
		sizes = 2
	}
	size, err := strconv.Atoi(line[len(line)-1])
	if err != nil {
		return err
	}
	header := 0
	if sizes == 2 {
		if header, err = strconv.Atoi(line[len(line)-2]); err != nil {
			return err
		}
	}
	message := make([]byte, size+len("\r\n"))
	if _, err := io.ReadFull(r.lines, message); err != nil {
		return err
	}
	m := RogueMessage{Subject: line[1], Payload: message[header:size]}
	if len(line) > 2+sizes {
		m.Reply = line[2]
	}
	r.Heard = append(r.Heard, m)
	return nil
}

// LeafMessage is a message as a leaf's server sends it. Reply may be empty.
func LeafMessage(subject, reply, payload string) string {
	return fmt.Sprintf("%s %d\r\n%s", strings.TrimSpace("LMSG "+subject+" "+reply), len(payload), payload)
}

// FlowControl and Stalled are what a server takes for flow control by the consumer that it sources from: it publishes to target. Command
// is the protocol's: HPUB of a client, HMSG of a leaf.
func FlowControl(command, subject, target string) string {
	return Headed(command+" "+subject+" "+target, "NATS/1.0 100 FlowControl Request\r\n\r\n", "")
}

// Stalled has a status in the header's first line, which may be empty.
func Stalled(command, subject, target, status, payload string) string {
	return Headed(command+" "+subject, strings.TrimSpace("NATS/1.0 "+status)+"\r\nNats-Consumer-Stalled: "+target+"\r\n\r\n", payload)
}

// Headed is a message with a header.
func Headed(command, head, payload string) string {
	return fmt.Sprintf("%s %d %d\r\n%s%s", command, len(head), len(head)+len(payload), head, payload)
}
