// SPDX-License-Identifier: Apache-2.0

package feedserver

import "testing"

// Rings and connections fit in the available memory, unless they are configured larger.
func TestFit(t *testing.T) {
	for _, c := range []struct {
		limit, ring int64
		most        int
		wantRing    int64
		wantMax     int
	}{
		{0, 0, 0, 64 << 20, unlimitedSockets},
		{512 << 20, 0, 0, 64 << 20, 384},
		{512 << 20, 5 << 20, 7, 5 << 20, 7},
		{4 << 20, 0, 0, minRing, minConnections},
	} {
		cfg := Config{RingSize: c.ring, MaxConnections: c.most}
		if cfg.fit(c.limit); cfg.RingSize != c.wantRing || cfg.MaxConnections != c.wantMax {
			t.Errorf("%+v: %d bytes, %d connections", c, cfg.RingSize, cfg.MaxConnections)
		}
		if cfg.MaxSockets < 2*cfg.MaxConnections {
			t.Errorf("%+v: %d sockets for %d connections", c, cfg.MaxSockets, cfg.MaxConnections)
		}
		if c.limit > 64<<20 && c.most == 0 && cfg.RingSize+cfg.ArchiveSize+int64(cfg.MaxConnections)*connectionCost+int64(cfg.MaxSockets-cfg.MaxConnections)*socketCost > c.limit*9/10 {
			t.Errorf("%+v: all of it does not fit", c)
		}
	}
}
