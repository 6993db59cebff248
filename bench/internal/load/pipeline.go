// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/substorm/substorm/internal/wire"
)

const prefixSize = 4

// sent is an object that waits for its receipt.
type sent struct {
	digest wire.Digest
	due    time.Time
}

// pipelined sends length-prefixed objects over one connection for each sender,
// flat out or as they are due, and checks every receipt.
func pipelined(o Order) Outcome {
	t := &tally{histogram: hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3)}
	due := make(chan time.Time, 1<<16) // more than ever waits: senders must not hold up the clock
	var senders sync.WaitGroup
	begin := time.Now()
	for range o.Senders {
		senders.Go(func() {
			if err := pipe(o, begin, due, t); err != nil {
				t.fail(err)
			}
		})
	}
	if o.Rate > 0 {
		arrivals(o, begin, func(at time.Time) { due <- at })
	}
	close(due)
	senders.Wait()
	out := t.out
	out.BytesPerSecond = float64(out.Objects) * float64(o.Size) / time.Since(begin).Seconds()
	if o.Rate > 0 {
		out.P50, out.P99 = float64(t.histogram.ValueAtQuantile(50))/1000, float64(t.histogram.ValueAtQuantile(99))/1000
	}
	return out
}

// tally counts for all senders.
type tally struct {
	mu        sync.Mutex
	out       Outcome
	histogram *hdrhistogram.Histogram
}

func (t *tally) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out.Error = err.Error()
}

func (t *tally) receipted(s sent, tell bool) {
	took := time.Since(s.due)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out.Objects++
	if tell {
		t.out.Digests = append(t.out.Digests, s.digest)
	}
	_ = t.histogram.RecordValue(max(took.Microseconds(), 1)) // within its range
}

// pipe is one sender's connection.
func pipe(o Order, begin time.Time, due <-chan time.Time, t *tally) error {
	conn, err := net.Dial("tcp", o.Address)
	if err != nil {
		return err
	}
	defer conn.Close()
	// One waits for its receipt in receipts, the others here.
	waiting := make(chan sent, o.InFlight-1)
	ended := make(chan error, 1)
	go func() { ended <- receipts(o, conn, waiting, t) }()
	frame := make([]byte, prefixSize+o.Size)
	binary.BigEndian.PutUint32(frame, uint32(o.Size))
	b := newBody(o.Size)
	for {
		at, ok := time.Now(), true
		if o.Rate > 0 {
			at, ok = <-due
		} else if at.Sub(begin) >= o.Duration {
			ok = false
		}
		if !ok {
			close(waiting)
			return <-ended
		}
		b.next()
		copy(frame[prefixSize:], b.data)
		select {
		case waiting <- sent{b.digest, at}:
		case err := <-ended:
			return err
		}
		if _, err := conn.Write(frame); err != nil {
			close(waiting)
			return errors.Join(err, <-ended) // receipts may have come that are not read yet
		}
	}
}

// receipts reads one line for each object that waits.
func receipts(o Order, conn net.Conn, waiting <-chan sent, t *tally) error {
	lines := bufio.NewReader(conn)
	for s := range waiting {
		line, err := lines.ReadString('\n')
		if err != nil {
			return fmt.Errorf("receipt: %w", err)
		}
		if err := check(Receipt, line, s.digest, o.Size); err != nil {
			return err
		}
		t.receipted(s, o.Digests)
	}
	return nil
}
