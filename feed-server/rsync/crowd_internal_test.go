// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// attack has a client of an address connect again and again, say something, and then every nine seconds that it is alive.
func attack(ctx context.Context, s *Server, address, first string) {
	for ctx.Err() == nil {
		client, _ := connect(s, address, first)
		connected, stop := context.WithCancel(ctx)
		go says(connected, client, "", alive)
		_, _ = io.Copy(io.Discard, client)
		stop()
		time.Sleep(time.Second)
	}
}

// Clients from 200 addresses, or from 200 networks of one /48, come again and again and only say that they are alive. Another client gets
// the list, whether they hold turns or do not even ask for one.
func TestCrowdKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{"silent starts": greeting, "turns": greeting + everything} {
		for kind, address := range map[string]string{"IPv4": "198.51.100.%d", "a network of 48 bits": "2001:db8:0:%x::1"} {
			t.Run(name+" of "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newServer(t, 3, func(c *Config) { c.MaxTransfers = 8 })
					ctx, stop := context.WithCancel(t.Context())
					var attackers sync.WaitGroup
					for i := range 200 {
						attackers.Go(func() { attack(ctx, s, fmt.Sprintf(address, i+1), first) })
					}
					time.Sleep(6 * time.Minute) // each address had a turn: eight at a time, ten seconds each
					client, answer := connect(s, "192.0.2.9", greeting+everything)
					const listed = "instrument-00000"
					if got := answer(listed); !strings.HasSuffix(got, listed) {
						t.Errorf("no list came, but %q", got)
					}
					client.Close()
					stop()
					attackers.Wait()
					s.open.Wait()
				})
			})
		}
	}
}
