// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// checkEvery is how often a wait for answers looks whether the connection that they must come over is still the same.
const checkEvery = 50 * time.Millisecond

var (
	errNoAnswer = errors.New("no answer in time")
	errLost     = errors.New("the connection was lost before the answer")
)

// replies hears the answers to what is published. Answers are expected by one goroutine, one exchange at a time.
type replies struct {
	nc      *nats.Conn
	inbox   string
	sub     *nats.Subscription
	count   uint64
	current atomic.Pointer[exchange]
}

// exchange is one try: some messages and the answers to them.
type exchange struct {
	inbox      string // ends with a dot
	answers    chan reply
	reconnects uint64
}

type reply struct {
	index int
	msg   *nats.Msg
}

func listen(nc *nats.Conn) (*replies, error) {
	r := &replies{nc: nc, inbox: nc.NewInbox()}
	sub, err := nc.Subscribe(r.inbox+".*.*", r.hear)
	if err != nil {
		return nil, err
	}
	r.sub = sub
	return r, nil
}

func (r *replies) close() { _ = r.sub.Unsubscribe() }

// expect begins an exchange with up to n answers.
func (r *replies) expect(n int) *exchange {
	r.count++
	x := &exchange{
		inbox:   r.inbox + "." + strconv.FormatUint(r.count, 36) + ".",
		answers: make(chan reply, n), reconnects: r.nc.Stats().Reconnects,
	}
	r.current.Store(x)
	return x
}

func (r *replies) forget(x *exchange) { r.current.CompareAndSwap(x, nil) }

// subject is where the answer to the exchange's message of that index goes.
func (x *exchange) subject(index int) string { return x.inbox + strconv.Itoa(index) }

// hear drops answers to earlier exchanges: what they say, a later try finds out as a duplicate.
func (r *replies) hear(msg *nats.Msg) {
	x := r.current.Load()
	if x == nil {
		return
	}
	suffix, ok := strings.CutPrefix(msg.Subject, x.inbox)
	if !ok {
		return
	}
	index, err := strconv.Atoi(suffix)
	if err != nil || index < 0 || index >= cap(x.answers) {
		return
	}
	select {
	case x.answers <- reply{index, msg}:
	default: // more answers than messages
	}
}

// await returns the next answer of the exchange. An error means that none may come.
func (c *Committer) await(x *exchange) (reply, error) {
	select {
	case r := <-x.answers:
		return r, nil
	default:
	}
	deadline := time.Now().Add(c.cfg.AckWait)
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	for {
		select {
		case r := <-x.answers:
			return r, nil
		case <-c.ctx.Done():
			return reply{}, c.ctx.Err()
		case now := <-check.C:
			if !c.nc.IsConnected() || c.nc.Stats().Reconnects != x.reconnects {
				return reply{}, errLost
			}
			if now.After(deadline) {
				return reply{}, errNoAnswer
			}
		}
	}
}
