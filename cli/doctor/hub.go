// SPDX-License-Identifier: Apache-2.0

//go:build linux

package doctor

import (
	"context"
	"net"
	"time"
)

// hubTimeout is how long a name, and each connection, may take: longer than over a satellite.
const hubTimeout = 10 * time.Second

// reach looks up the name of a hub and connects to it. A Site works without it, so nothing of this fails.
func reach(ctx context.Context, hub string) Check {
	const check = "hub"
	host, port, _ := net.SplitHostPort(hub) // the flag was looked at
	began := time.Now()
	asking, cancel := context.WithTimeout(ctx, hubTimeout)
	addresses, err := net.DefaultResolver.LookupHost(asking, host)
	cancel()
	named := time.Since(began)
	if err != nil {
		return warning(check, "look at the name and at the name servers of this computer; the Site keeps what it receives meanwhile", "%s: %v", hub, err)
	}
	for _, address := range addresses {
		began = time.Now()
		dialer := net.Dialer{Timeout: hubTimeout}
		var conn net.Conn
		if conn, err = dialer.DialContext(ctx, "tcp", net.JoinHostPort(address, port)); err == nil {
			took := time.Since(began)
			_ = conn.Close()
			return fine(check, "%s: the name took %s, a connection to %s %s", hub, short(named), address, short(took))
		}
	}
	return warning(check, "look whether the link is up and the hub runs; the Site keeps what it receives meanwhile", "%s: the name took %s, and no address answers: %v", hub, short(named), err)
}

// short is a duration with as many digits as matter.
func short(d time.Duration) time.Duration {
	switch {
	case d > time.Second:
		return d.Round(10 * time.Millisecond)
	case d > time.Millisecond:
		return d.Round(10 * time.Microsecond)
	default:
		return d.Round(100 * time.Nanosecond)
	}
}
