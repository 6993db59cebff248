// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/hack/images/image"
	"github.com/substorm/substorm/hack/progress"
)

func root() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "A real Kubernetes on this machine, made, broken and removed by command",
		Long: "A real Kubernetes on this machine, made, broken and removed by command.\n\n" +
			"Where Docker answers, its nodes are kind's containers. Elsewhere they are namespaces of this machine, with\n" +
			"containerd and kubelets built from source (needs root). It touches nothing that it did not make.",
		SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	cmd.PersistentFlags().StringVar(&o.name, "name", "substorm", "name of the cluster, and prefix of all that it makes")
	cmd.PersistentFlags().StringVar(&o.on, "on", "auto", "what a new cluster runs on: auto, kind or bare")
	cmd.AddCommand(upCommand(&o), downCommand(&o), loadCommand(&o), nodesCommand(&o), volumesCommand(&o),
		statusCommand(&o), execCommand(&o), kubeconfigCommand(&o), envCommand(&o), metricsServerCommand(&o),
		nodeCommand(&o, "kill", "Power a node off, without warning", driver.Kill),
		nodeCommand(&o, "start", "Power a node on again", driver.Start),
		nodeCommand(&o, "cut", "Cut a node off from all others and the API server; its processes go on", driver.Cut),
		nodeCommand(&o, "join", "Undo cut", driver.Join))
	return cmd
}

// with opens the cluster for one command.
func (o *options) with(ctx context.Context, f func(driver, *progress.Printer) error) error {
	p := progress.New(os.Stderr)
	d, unlock, err := o.open(ctx, p)
	if err != nil {
		return err
	}
	defer unlock()
	return f(d, p)
}

// withMade is with, for commands that need a cluster that is there.
func (o *options) withMade(ctx context.Context, f func(driver, *progress.Printer) error) error {
	return o.with(ctx, func(d driver, p *progress.Printer) error {
		if !d.Made() {
			return fmt.Errorf("there is no cluster %s: make it with `go run ./hack/cluster --name %[1]s up`", o.name)
		}
		return f(d, p)
	})
}

func upCommand(o *options) *cobra.Command {
	var nodes int
	cmd := &cobra.Command{
		Use: "up", Short: "Make the cluster, or start what does not run of it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if nodes < 0 || cmd.Flags().Changed("nodes") && nodes == 0 {
				return fmt.Errorf("--nodes %d: a cluster has at least 1", nodes)
			}
			return o.with(cmd.Context(), func(d driver, p *progress.Printer) error {
				d, err := o.up(cmd.Context(), p, d, nodes)
				if err != nil {
					return err
				}
				p.Line("cluster %s is up: %s", o.name, d.About())
				return env(cmd.Context(), d)
			})
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", 0, "number of nodes (default: as many as there are, at least 1)")
	return cmd
}

func downCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "Remove the cluster and all its data", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.with(cmd.Context(), func(d driver, _ *progress.Printer) error { return d.Down(cmd.Context()) })
		},
	}
}

func loadCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "load IMAGE...", Args: cobra.MinimumNArgs(1),
		Short: "Give images to all nodes: names that hack/images knows, paths of tars, or all",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withMade(cmd.Context(), func(d driver, p *progress.Printer) error {
				tars, err := imageTars(cmd.Context(), p, args)
				if err != nil {
					return err
				}
				return d.Load(cmd.Context(), tars...)
			})
		},
	}
}

// imageTars turns names of images into the tars of their current builds; all stands for those that the charts use by default.
func imageTars(ctx context.Context, p *progress.Printer, args []string) ([]string, error) {
	if slices.Equal(args, []string{"all"}) {
		args = image.Names()
	}
	var tars []string
	for _, arg := range args {
		if strings.HasSuffix(arg, ".tar") {
			tars = append(tars, arg)
			continue
		}
		built, err := image.Build(ctx, p, arg, image.Tag())
		if err != nil {
			return nil, err
		}
		tars = append(tars, built.Path)
	}
	return tars, nil
}

func nodesCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "nodes N", Short: "Grow or shrink to N nodes", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[0])
			if err != nil || n < 1 {
				return fmt.Errorf("%q is not a number of nodes, such as 1 or 3", args[0])
			}
			return o.withMade(cmd.Context(), func(d driver, _ *progress.Printer) error { return d.Nodes(cmd.Context(), n) })
		},
	}
}

func volumesCommand(o *options) *cobra.Command {
	var clear bool
	cmd := &cobra.Command{
		Use: "volumes", Args: cobra.NoArgs, Short: "List the volumes, or empty those whose claim was deleted",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.withMade(cmd.Context(), func(d driver, _ *progress.Printer) error {
				lines, err := d.Volumes(cmd.Context(), clear)
				for _, line := range lines {
					fmt.Println(line)
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&clear, "clear", false, "delete the data of volumes whose claim was deleted, and make them available again")
	return cmd
}

func kubeconfigCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "kubeconfig", Short: "Print the path of the administrator's kubeconfig", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.withMade(cmd.Context(), func(d driver, _ *progress.Printer) error {
				fmt.Println(d.Kubeconfig())
				return nil
			})
		},
	}
}

func envCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "env", Short: "Print what a shell needs: eval \"$(go run ./hack/cluster env)\"", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.withMade(cmd.Context(), func(d driver, _ *progress.Printer) error { return env(cmd.Context(), d) })
		},
	}
}

func statusCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the nodes, as this machine and as Kubernetes see them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.with(cmd.Context(), func(d driver, _ *progress.Printer) error {
				if !d.Made() {
					fmt.Printf("there is no cluster %s\n", o.name)
					return nil
				}
				return status(cmd.Context(), o.name, d)
			})
		},
	}
}

func status(ctx context.Context, name string, d driver) error {
	nodes, err := d.Status(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("cluster %s: %s\n", name, d.About())
	for _, n := range nodes {
		fmt.Printf("%d  %-24s %-8s %s\n", n.number, n.name, n.state, n.address)
	}
	kubectl, err := d.Kubectl(ctx)
	if err != nil {
		return err
	}
	get := exec.CommandContext(ctx, kubectl, "--kubeconfig="+d.Kubeconfig(), "--request-timeout=5s", "get", "nodes")
	get.Stdout, get.Stderr = os.Stdout, os.Stderr
	if err := get.Run(); err != nil {
		return errors.New("the API server does not answer: `go run ./hack/cluster up` starts it")
	}
	return nil
}
