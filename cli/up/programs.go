// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"context"
	"net"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/archivist"
	"github.com/substorm/substorm/cli/up/child"
	"github.com/substorm/substorm/cli/up/pods"
	feedserver "github.com/substorm/substorm/feed-server"
	ingestgateway "github.com/substorm/substorm/ingest-gateway"
	"github.com/substorm/substorm/internal/stream"
	mirrorjobs "github.com/substorm/substorm/mirror-jobs"
	"github.com/substorm/substorm/operator/plan/workload"
)

// gatewayProgram is the name of the gateway's container.
const gatewayProgram = "gateway"

// programs are the programs of the planned pods, by the names of their containers: each is configured by its own flags. A mover reads
// what others serve, and runs in a process of its own.
func (s *site) programs() map[string]pods.Program {
	of := func(command func() *cobra.Command) pods.Program {
		return func(ctx context.Context, arguments []string) error {
			c := command()
			c.SetArgs(arguments)
			return c.ExecuteContext(ctx)
		}
	}
	return map[string]pods.Program{
		gatewayProgram: of(ingestgateway.Command), workload.ArchivistProgram: of(archivist.Command), workload.FeedServerProgram: of(feedserver.Command),
		workload.MirrorProgram: s.move,
	}
}

// gather is how long datagrams of instruments whose acknowledge allows it wait, so that one sync a second serves all of them: an SD card
// wears out by syncs.
const gather = time.Second

// apart are the programs that run in processes of their own.
var apart = map[string]func() *cobra.Command{workload.MirrorProgram: mirrorjobs.Command}

// ChildCommand is what such a process runs.
func ChildCommand() *cobra.Command { return child.Command(apart) }

// move runs a mover, which reaches the servers of this process as commands do.
func (s *site) move(ctx context.Context, arguments []string) error {
	const servers = "--nats-servers="
	arguments = slices.Clone(arguments)
	if i := slices.Index(arguments, servers+stream.EmbeddedURL); i >= 0 {
		arguments[i] = servers + s.socketURL()
	}
	return child.Run(ctx, child.Config{Program: workload.MirrorProgram, Arguments: arguments, Memory: child.Limit(), Stderr: os.Stderr})
}

// override are the flags that hold in one process whatever the container's arguments say.
func (s *site) override(p pods.Started) []string {
	all := []string{"--listen-http=" + p.Health, "--log-level=" + s.cfg.LogLevel}
	switch p.Program {
	case gatewayProgram:
		all = append(all, "--replica-listen=", // there is no other gateway
			"--gather="+gather.String(),
			"--listen-address="+s.cfg.ListenIngest, "--mirror-listen="+net.JoinHostPort(pods.Address, "0"))
	case workload.FeedServerProgram:
		all = append(all, "--listen="+s.servers.of(p.Name))
		if at := s.servers.rsync(p.Arguments); at != "" {
			all = append(all, "--rsync-address="+at)
		}
	}
	return all
}
