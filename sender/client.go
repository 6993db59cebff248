// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"time"
)

// ClientConfig says where a Client sends to. Durations that are zero have the
// defaults of the command's flags.
type ClientConfig struct {
	// Addresses are host:port, see ParseAddresses.
	Addresses      []string
	ConnectTimeout time.Duration
	ReceiptTimeout time.Duration
	// HedgeAfter is how long a server may be silent at least before an object is
	// tried elsewhere too.
	HedgeAfter time.Duration
	// GiveUpAfter is how long an object is tried; 0 tries each address once.
	GiveUpAfter time.Duration
}

// Object is something to send that need not be a file.
type Object struct {
	Name string
	// Open returns the object's bytes, as often as it must be sent: the same
	// each time.
	Open func() (io.ReadCloser, error)
}

// Client sends single objects over TCP and believes what `substorm send`
// believes. Its methods may be called from many goroutines.
type Client struct{ delivery *delivery }

// NewClient returns a client; it connects for each object.
func NewClient(cfg ClientConfig) (*Client, error) {
	if len(cfg.Addresses) == 0 {
		return nil, errors.New("no server to send to")
	}
	uncounted := func(int64) {}
	s := &sender{
		dialer:         net.Dialer{Timeout: cmp.Or(cfg.ConnectTimeout, connectTimeout)},
		receiptTimeout: cmp.Or(cfg.ReceiptTimeout, receiptTimeout), sent: uncounted, lost: uncounted,
	}
	d := newDelivery(s.attempt, cfg.Addresses, cmp.Or(cfg.HedgeAfter, hedgeAfter))
	d.giveUpAfter = cfg.GiveUpAfter
	return &Client{d}, nil
}

// Send sends one object until it is received, refused for good, or given up.
func (c *Client) Send(ctx context.Context, o Object) Result {
	return c.delivery.deliver(ctx, item{name: o.Name, size: -1, open: o.Open})
}
