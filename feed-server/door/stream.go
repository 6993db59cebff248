// SPDX-License-Identifier: Apache-2.0

package door

import (
	"bytes"
	"context"
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

// Events answers with Server-Sent Events until the client goes, the channel is closed,
// or the replica stops. A full house is a problem. HEAD gets the head alone.
func (v *Visit) Events(events <-chan Event) *problem.Problem {
	select {
	case v.gate.streams <- struct{}{}:
		defer func() { <-v.gate.streams }()
	default:
		return problem.New(http.StatusServiceUnavailable, "this replica follows as much as it may: ask again").After(RetryAway)
	}
	h := v.W.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies pass on what comes
	v.W.WriteHeader(http.StatusOK)
	if v.Method == http.MethodHead {
		return nil
	}
	err := v.sendEvents(v.Context(), events)
	if err == nil {
		_ = http.NewResponseController(v.W).SetWriteDeadline(time.Time{})
	}
	return nil
}

func (v *Visit) sendEvents(ctx context.Context, events <-chan Event) error {
	var b bytes.Buffer
	b.WriteString(again)
	silence := time.NewTicker(heartbeat)
	defer silence.Stop()
	for {
		if err := v.Send(b.Bytes()); err != nil {
			return err
		}
		if err := v.Flush(); err != nil {
			return err
		}
		b.Reset()
		select {
		case e, more := <-events:
			if !more {
				return nil
			}
			e.write(&b)
			silence.Reset(heartbeat)
		case <-silence.C:
			b.WriteString(":\n\n")
		case <-v.gate.cfg.Draining:
			return nil
		case <-ctx.Done():
			return ctx.Err()
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
