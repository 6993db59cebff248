// SPDX-License-Identifier: Apache-2.0

// Command telegraf is Telegraf's agent with the plugins that a benchmark needs:
// it receives datagrams and writes them to a file. The upstream main compiles the
// clients of some hundred services.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/influxdata/telegraf/agent"
	"github.com/influxdata/telegraf/config"

	_ "github.com/influxdata/telegraf/plugins/inputs/socket_listener"
	_ "github.com/influxdata/telegraf/plugins/outputs/file"
	_ "github.com/influxdata/telegraf/plugins/parsers/value"
	_ "github.com/influxdata/telegraf/plugins/serializers/influx"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: telegraf CONFIG, a file in TOML")
	}
	c := config.NewConfig()
	if err := c.LoadConfig(args[0]); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return agent.NewAgent(c).Run(ctx)
}
