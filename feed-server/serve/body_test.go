// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/testenv"
)

// A client that announces a body, and sends none, or one without an end, loses the connection,
// at every endpoint.
func TestBodiesThatDoNotCome(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t)
	var all sync.WaitGroup
	for _, pattern := range s.Endpoints() {
		method, path, _ := strings.Cut(strings.ReplaceAll(pattern, "{feed}", "all"), " ")
		for what, c := range map[string]struct {
			rest string
			want int
		}{
			"none":        {"Content-Length: 1000\r\n\r\n", http.StatusRequestTimeout},
			"some of it":  {"Content-Length: 1000\r\n\r\nabc", http.StatusRequestTimeout},
			"one chunk":   {"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", http.StatusRequestTimeout},
			"too much":    {"Content-Length: 100000\r\n\r\n" + strings.Repeat("x", maxBody+1), http.StatusRequestEntityTooLarge},
			"not awaited": {"Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n", http.StatusRequestTimeout},
		} {
			all.Go(func() {
				conn, err := net.Dial("tcp", s.Address())
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(3 * time.Minute))
				_, _ = fmt.Fprintf(conn, "%s %s?consumer=events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer events-token\r\n%s", method, path, c.rest)
				answers := bufio.NewReader(conn)
				resp, err := http.ReadResponse(answers, nil)
				for err == nil && resp.StatusCode == http.StatusContinue {
					resp, err = http.ReadResponse(answers, nil)
				}
				if err != nil {
					t.Errorf("%s, %s: %v", pattern, what, err)
					return
				}
				if resp.StatusCode != c.want {
					t.Errorf("%s, %s: %s", pattern, what, resp.Status)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				if _, err := answers.ReadByte(); err != io.EOF && !strings.Contains(fmt.Sprint(err), "reset") {
					t.Errorf("%s, %s: it is still open: %v", pattern, what, err)
				}
			})
		}
	}
	all.Wait()
}

// lockedBuffer is what a log is written to while it is read.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(strings.Lines(l.b.String()))
}

// A live connection that carries what is Restricted has a line when it begins and one
// when it ends; one that does not has none.
func TestLiveAccessIsLogged(t *testing.T) {
	t.Parallel()
	var out lockedBuffer
	s, _ := newServer(t, func(c *Config) {
		log := endpoint.NewAccessLog(&out, c.Metrics)
		go func() { _ = log.Run(t.Context()) }()
		c.Admission = endpoint.NewAdmission(endpoint.AdmissionConfig{AccessLog: log, Logger: c.Logger, Metrics: c.Metrics})
	})
	for _, consumer := range []string{"public", "events"} {
		if status, _, body := s.asks(t, "GET /feeds/{feed}/events", consumer, consumer); status != http.StatusOK {
			t.Fatalf("%s: %d %s", consumer, status, body)
		}
	}
	for range testenv.Attempts() {
		if len(out.lines()) >= 2 {
			break
		}
	}
	var events []string
	for _, text := range out.lines() {
		var line endpoint.AccessLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		events = append(events, line.Event)
		if line.Reader != "consumer:events" || !slices.Equal(line.Instruments, []string{"mag"}) || line.Access != endpoint.AccessRestricted || line.Path != "/feeds/all/events?consumer=events" || strings.Contains(text, "token") {
			t.Errorf("%s", text)
		}
	}
	if !slices.Equal(events, []string{endpoint.EventOpened, endpoint.EventClosed}) {
		t.Errorf("%q", events)
	}
}
