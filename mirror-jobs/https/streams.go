// SPDX-License-Identifier: Apache-2.0

package https

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/mirror-jobs/plan"
)

// Buffers of connections are left to the kernel, which lets them grow with what is measured on each. To set one (SO_RCVBUF)
// would end that for the connection, and net.core.rmem_max, which is far below what the kernel grows to, would bound it.

// window is how many bytes a connection can have in flight: half of what the kernel lets a receive buffer grow to (tcp_rmem, tcp(7)), as
// it counts its own memory for packets there, too; 0: unknown.
var window = sync.OnceValue(func() int64 {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_rmem")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) != 3 {
		return 0
	}
	most, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return 0
	}
	return most / 2
})

// partTurn waits until one more part may be asked for.
func (c *Client) partTurn(ctx context.Context) (end func(), err error) {
	return c.streams.begin(ctx, c.planned())
}

// bundleTurn waits until one more bundle may be asked for. To ask for more than the other side sends would only have more connections
// begin slowly, one after the other.
func (c *Client) bundleTurn(ctx context.Context) (end func(), err error) {
	return c.bundles.begin(ctx, int(min(max(1, c.sends.Load()), int64(max(1, c.cfg.Connections)))))
}

// planned is how many parts are asked for at the same time.
func (c *Client) planned() int {
	w := c.path.way()
	if c.cfg.BytesPerSecond != nil {
		w.Limit = c.cfg.BytesPerSecond()
	}
	return plan.Streams(w, max(1, c.cfg.Connections))
}

// shares are divided among as many streams as are planned when one begins.
const shares = 1 << 20

// streams bounds how many requests are under way by a number that may change.
type streams struct{ free *semaphore.Weighted }

func newStreams() *streams { return &streams{semaphore.NewWeighted(shares)} }

// begin waits until one more of so many may begin. Errors: ctx's.
func (s *streams) begin(ctx context.Context, planned int) (end func(), err error) {
	share := int64(shares / planned)
	if err := s.free.Acquire(ctx, share); err != nil {
		return nil, err
	}
	return func() { s.free.Release(share) }, nil
}
