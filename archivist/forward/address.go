// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/substorm/substorm/internal/egress"
)

// errNotAllowed: the address is one of a network to which copies may not go.
var errNotAllowed = errors.New("copies do not go to this network: have an administrator add it to spec.archivist.forwardNetworks of the Site, or name another server in the Instrument")

// dialer connects to old servers. A user who may write an Instrument must not reach addresses that only the
// cluster, or the gateway's node, can reach.
func (c *Config) dialer() *net.Dialer {
	may := egress.Networks(c.Networks)
	return &net.Dialer{Timeout: dialTimeout, Control: func(network, address string, raw syscall.RawConn) error {
		err := may.Control(network, address, raw)
		if errors.Is(err, egress.ErrNotPublic) {
			err = fmt.Errorf("%w: %w", err, errNotAllowed)
		}
		return err
	}}
}
