// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"context"
	"net"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/archivist"
	"github.com/substorm/substorm/cli/up/pods"
	feedserver "github.com/substorm/substorm/feed-server"
	ingestgateway "github.com/substorm/substorm/ingest-gateway"
	mirrorjobs "github.com/substorm/substorm/mirror-jobs"
	"github.com/substorm/substorm/operator/plan"
)

// gatewayProgram is the name of the gateway's container.
const gatewayProgram = "gateway"

// programs are those of the planned pods, by the names of their containers: each is told by its own flags what to do.
func programs() map[string]pods.Program {
	of := func(command func() *cobra.Command) pods.Program {
		return func(ctx context.Context, arguments []string) error {
			c := command()
			c.SetArgs(arguments)
			return c.ExecuteContext(ctx)
		}
	}
	return map[string]pods.Program{
		gatewayProgram: of(ingestgateway.Command), plan.ArchivistProgram: of(archivist.Command), plan.FeedServerProgram: of(feedserver.Command),
		plan.MirrorProgram: of(mirrorjobs.Command),
	}
}

// override are the flags that hold in one process whatever the container's arguments say.
func (s *site) override(p pods.Started) []string {
	all := []string{"--listen-http=" + p.Health, "--log-level=" + s.cfg.LogLevel}
	switch p.Program {
	case gatewayProgram:
		all = append(all, "--replica-listen=", // there is no other gateway
			"--listen-address="+s.cfg.ListenIngest, "--mirror-listen="+net.JoinHostPort(pods.Address, "0"))
	case plan.FeedServerProgram:
		all = append(all, "--listen="+s.servers.of(p.Name))
		if at := s.servers.rsync(p.Arguments); at != "" {
			all = append(all, "--rsync-address="+at)
		}
	}
	return all
}
