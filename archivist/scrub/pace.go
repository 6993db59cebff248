// SPDX-License-Identifier: Apache-2.0

package scrub

import (
	"context"
	"io"

	"golang.org/x/time/rate"
)

// burst is how much may be read at once, in bytes.
const burst = 256 << 10

// pace bounds how much is read.
type pace struct{ limiter *rate.Limiter }

func newPace(bytesPerSecond int64) *pace {
	return &pace{rate.NewLimiter(rate.Limit(bytesPerSecond), burst)}
}

// wait waits until so many bytes may be read; at most burst.
func (p *pace) wait(ctx context.Context, bytes int) error { return p.limiter.WaitN(ctx, bytes) }

// through slows a reader down.
func (p *pace) through(ctx context.Context) func(io.Reader) io.Reader {
	return func(r io.Reader) io.Reader { return &paced{r, p, ctx} }
}

type paced struct {
	io.Reader
	pace *pace
	ctx  context.Context
}

// Read implements io.Reader.
func (p *paced) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b[:min(len(b), burst)])
	if n > 0 {
		if waitErr := p.pace.wait(p.ctx, n); waitErr != nil {
			return n, waitErr
		}
	}
	return n, err
}
