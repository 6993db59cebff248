// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
)

// A client is sent no more than it asks for by --bwlimit, but more than what is cut off as too slow. The clock is the test's.
func TestBandwidthLimit(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	for argument, want := range map[string]time.Duration{
		"--bwlimit=64": (size - chunk) / (64 << 10) * time.Second, "--bwlimit=1": (size - chunk) / leastRate * time.Second, "--bwlimit=0": 0, "--no-r": 0,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, 1, nil)
			client, conn := net.Pipe()
			is := s.newSession(conn, endpoint.RequestOfConnection(t.Context(), conn))
			o, err := parseArguments("thule", []string{"--server", "--sender", "-r", argument, ".", "thule/"})
			if err != nil {
				t.Fatal(err)
			}
			is.limit = o.limiter()
			go io.Copy(io.Discard, client)
			began := time.Now()
			if _, err := (paced{is}).Write(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began).Round(time.Second); took != want {
				t.Errorf("%s: %v, want %v", argument, took, want)
			}
			client.Close()
			conn.Close()
		})
	}
}
