// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/wire"
)

// A ticket is worth what the token is with which it was asked for: when that is replaced
// or deleted, the ticket opens nothing, and the stream that it opened ends.
func TestTicketEndsWithItsToken(t *testing.T) {
	t.Parallel()
	other := []wire.TokenHash{wire.HashToken([]byte("other"), "other-token")}
	for name, c := range map[string]struct {
		who   string
		token func(r []wire.ConsumerEntry, readers []wire.ReaderEntry)
	}{
		"of a consumer, replaced": {"events", func(c []wire.ConsumerEntry, _ []wire.ReaderEntry) { c[1].Tokens = other }},
		"of a consumer, deleted":  {"events", func(c []wire.ConsumerEntry, _ []wire.ReaderEntry) { c[1].Tokens = nil }},
		"of a reader, replaced":   {namedReader, func(_ []wire.ConsumerEntry, r []wire.ReaderEntry) { r[0].Tokens = other }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, nats := newServer(t)
			ticket := func() string {
				status, _, body := s.asks(t, ticketEndpoint, "events", c.who)
				var answer struct{ Ticket string }
				if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusCreated {
					t.Fatalf("%d %s, %v", status, body, err)
				}
				return answer.Ticket
			}
			open := func(ticket string) *http.Response {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Address()+"/feeds/all/events?consumer=events&ticket="+ticket, nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = resp.Body.Close() })
				return resp
			}
			running, unused := open(ticket()), ticket()
			if running.StatusCode != http.StatusOK {
				t.Fatal(running.Status)
			}
			changed := declared()
			changed.Revision = 2
			c.token(changed.Consumers, changed.Readers)
			for i := range changed.Consumers {
				changed.Consumers[i].Revision = 2
			}
			for i := range changed.Readers {
				changed.Readers[i].Revision = 2
			}
			nats.Declare(t, site, changed)
			for now, wait := s.cfg.Registry.Watch(); now.Revision < 2; now, wait = s.cfg.Registry.Watch() {
				<-wait
			}
			if resp := open(unused); resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("a ticket that was not used: %s", resp.Status)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				beats := 0
				for b := make([]byte, 4096); ; {
					n, err := running.Body.Read(b)
					if beats += strings.Count(string(b[:n]), ": \n"); beats > 2 { // the first comes at once
						t.Error("the stream goes on")
						return
					}
					if err != nil {
						if err != io.EOF {
							t.Error(err)
						}
						return
					}
				}
			}()
			<-ended
		})
	}
}
