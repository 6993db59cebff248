// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"bytes"
	"net/http"
	"time"

	"github.com/substorm/substorm/internal/problem"
)

const (
	// heartbeat is how often something is sent where nothing happens: proxies and clients
	// give up a connection on which nothing comes for a minute.
	heartbeat = 15 * time.Second
	// again is when a client comes back, in milliseconds.
	again = "retry: 1000\n\n"
)

// Event is one of Server-Sent Events. Data has no line breaks.
type Event struct {
	Kind, ID string
	Data     []byte
}

// Follow answers with Server-Sent Events: what event makes of all that comes from a
// channel, nil being nothing. It ends when the client goes, the channel is closed, event
// has an error, or the replica stops. A full house is a problem. HEAD gets the head
// alone.
func Follow[T any](v *Request, from <-chan T, event func(T) (*Event, error)) *problem.Problem {
	admission := v.check.cfg.Admission
	leave, full := admission.Connections.Enter(admission.AddressOf(v.Request), v.Identity)
	if full != nil {
		return full
	}
	defer leave()
	Narrow(v.Request)
	h := v.W.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies pass on what comes
	v.W.WriteHeader(http.StatusOK)
	if v.Method == http.MethodHead {
		return nil
	}
	admission.Traffic.streams.Add(1)
	defer admission.Traffic.streams.Add(-1)
	// A client sees the end, and comes again.
	if err := follow(v, from, event); err == nil {
		_ = http.NewResponseController(v.W).SetWriteDeadline(time.Time{})
	}
	return nil
}

func follow[T any](v *Request, from <-chan T, event func(T) (*Event, error)) error {
	b := bytes.NewBufferString(again)
	silence := time.NewTicker(heartbeat)
	defer silence.Stop()
	for {
		if b.Len() > 0 {
			if err := v.Send(b.Bytes()); err != nil {
				return err
			}
			if err := v.Flush(); err != nil {
				return err
			}
			silence.Reset(heartbeat)
			b.Reset()
		}
		select {
		case is, more := <-from:
			if !more {
				return nil
			}
			e, err := event(is)
			if err != nil {
				return err
			}
			if e != nil {
				e.write(b)
			}
		case <-silence.C:
			b.WriteString(":\n\n")
		case <-v.check.cfg.Draining:
			return nil
		case <-v.Context().Done():
			return v.Context().Err()
		}
	}
}

func (e Event) write(b *bytes.Buffer) {
	if e.Kind != "" {
		b.WriteString("event: " + e.Kind + "\n")
	}
	if e.ID != "" {
		b.WriteString("id: " + e.ID + "\n")
	}
	b.WriteString("data: ")
	b.Write(e.Data)
	b.WriteString("\n\n")
}
