// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/hack/progress"
)

// node is what status prints about a node.
type node struct {
	number               int
	name, state, address string
}

// nodeCommand makes a command that does something to one node. A call without a node gets an error that lists the nodes.
func nodeCommand(o *options, name, short string, do func(driver, context.Context, int) error) *cobra.Command {
	return &cobra.Command{
		Use: name + " NODE", Short: short, Example: "  go run ./hack/cluster " + name + " 2", Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withNode(cmd, args, len(args) == 1, func(d driver, n int) error { return do(d, cmd.Context(), n) })
		},
	}
}

func execCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "exec NODE -- COMMAND...", Short: "Run a command inside a node", Example: "  go run ./hack/cluster exec 2 -- ps ax",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withNode(cmd, args, len(args) > 1, func(d driver, n int) error { return d.Exec(cmd.Context(), n, args[1:]) })
		},
	}
}

// withNode calls f with the node that the first argument names; where the arguments are not complete, it explains them.
func (o *options) withNode(cmd *cobra.Command, args []string, complete bool, f func(driver, int) error) error {
	return o.with(cmd.Context(), func(d driver, _ *progress.Printer) error {
		var all []node
		if d.Made() {
			var err error
			if all, err = d.Status(cmd.Context()); err != nil {
				return err
			}
		}
		if !complete {
			return explain(cmd, nodesOf(o.name, all))
		}
		n, found := number(all, args[0])
		if !found {
			return fmt.Errorf("no node is called %q; %s", args[0], nodesOf(o.name, all))
		}
		return f(d, n)
	})
}

// number returns the number of the node that has this number or name.
func number(all []node, arg string) (int, bool) {
	for _, n := range all {
		if arg == strconv.Itoa(n.number) || arg == n.name {
			return n.number, true
		}
	}
	return 0, false
}

// nodesOf says which nodes a cluster has.
func nodesOf(cluster string, all []node) string {
	if len(all) == 0 {
		return fmt.Sprintf("there is no cluster %s: make it with `go run ./hack/cluster --name %[1]s up`", cluster)
	}
	names := make([]string, len(all))
	for i, n := range all {
		names[i] = fmt.Sprintf("%d (%s)", n.number, n.name)
	}
	return fmt.Sprintf("the nodes of the cluster %s are %s", cluster, strings.Join(names, ", "))
}

// explain is the answer to a command that lacks its NODE.
func explain(cmd *cobra.Command, nodes string) error {
	return errors.New("name one NODE, by its number or its name\n" +
		"usage:   go run ./hack/" + cmd.CommandPath() + cmd.Use[len(cmd.Name()):] + "\n" +
		"example: " + strings.TrimSpace(cmd.Example) + "\n" + nodes)
}
