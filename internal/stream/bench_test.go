// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
)

// BenchmarkCommit compares messages one by one with atomic batches on a server that syncs every write, by how many
// messages are on their way at a time. minBatch is where the batch begins to win.
func BenchmarkCommit(b *testing.B) {
	nc := connect(b, testenv.NATS(b, testenv.NATSOptions{}))
	makeStream(b, nc, nil)
	var total atomic.Int64
	for _, size := range []int{300, 4 << 10, 64 << 10} {
		for _, inFlight := range []int{1, 4, 8, 16, 32, 100, 500} {
			for _, mode := range []struct {
				name     string
				minBatch int
			}{{"singly", MaxGroup + 1}, {"batch", 2}} {
				b.Run(fmt.Sprintf("%dB/%d/%s", size, inFlight, mode.name), func(b *testing.B) {
					c := newCommitter(b, nc, func(cfg *CommitterConfig) { cfg.minBatch = mode.minBatch })
					data := make([]byte, size)
					var settled sync.WaitGroup
					slots := make(chan struct{}, inFlight)
					b.SetBytes(int64(size))
					b.ResetTimer()
					for range b.N {
						slots <- struct{}{}
						settled.Add(1)
						err := c.Submit(context.Background(), message(strconv.FormatInt(total.Add(1), 10), data), func(_ Ack, err error) {
							if err != nil {
								b.Error(err)
							}
							<-slots
							settled.Done()
						})
						if err != nil {
							b.Fatal(err)
						}
					}
					settled.Wait()
				})
			}
		}
	}
}
