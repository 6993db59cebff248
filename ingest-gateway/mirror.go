// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"fmt"
	"net"
	"strconv"

	"github.com/substorm/substorm/internal/wire"
)

// openMirror opens the port to which runs of mirrors send, where one is declared.
func (g *gateway) openMirror() error {
	if g.cfg.MirrorListen == "" {
		return nil
	}
	if err := g.web.ListenMirror(g.cfg.MirrorListen); err != nil {
		return fmt.Errorf("--mirror-listen %s: %w", g.cfg.MirrorListen, err)
	}
	return nil
}

// addMirror says in a report where runs of mirrors send, and what certificate they see there. A gateway that drains takes
// no new run.
func (g *gateway) addMirror(s *wire.GatewayStatus) {
	if port, shown, ok := g.web.Mirror(); ok && g.cfg.PodIP != "" && !s.Draining {
		s.Mirror = &wire.MirrorListener{Address: net.JoinHostPort(g.cfg.PodIP, strconv.Itoa(int(port))), Certificate: shown}
	}
}
