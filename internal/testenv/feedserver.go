// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"cmp"
	"fmt"
	"testing"
)

// FeedServerOptions say for which Site a feed server works.
type FeedServerOptions struct {
	// Site is the code; its streams, buckets (CreateSite) and registry
	// (Bus.Declare) exist.
	Site string
	NATS Bus
	// Pod is its name; feed-server-0 where it is empty.
	Pod string
	// Flags are added to the command line.
	Flags []string
}

// FeedServer is a running feed-server.
type FeedServer struct {
	*Process
	address, http string
}

// StartFeedServer builds the feed server of this checkout and waits until it knows
// the Site's registry.
func StartFeedServer(t testing.TB, o FeedServerOptions) *FeedServer {
	t.Helper()
	dir := t.TempDir()
	o.Pod = cmp.Or(o.Pod, "feed-server-0")
	f := &FeedServer{address: fmt.Sprintf("127.0.0.1:%d", FreePort(t)), http: fmt.Sprintf("127.0.0.1:%d", FreePort(t))}
	argv := append([]string{
		buildProgram(t, dir, "feed-server"), "--site", o.Site, "--pod", o.Pod, "--listen", f.address, "--listen-http", f.http,
		"--nats-servers", o.NATS.URL(),
	}, append(o.NATS.programFlags(t), o.Flags...)...)
	f.Process = newProcess(t, "feed-server", dir, argv, nil, func() error { return ready(f.http) })
	f.Start()
	return f
}

// Address is host:port for consumers.
func (f *FeedServer) Address() string { return f.address }

// Metrics is the URL of its metrics.
func (f *FeedServer) Metrics() string { return "http://" + f.http + "/metrics" }
