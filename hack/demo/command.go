// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func (d *demo) command(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = d.root
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if d.kubeconfig != "" {
		cmd.Env = append(cmd.Env, "KUBECONFIG="+d.kubeconfig)
	}
	return cmd
}

// output runs a short command and returns what it prints.
func (d *demo) output(ctx context.Context, argv ...string) (string, error) {
	cmd := d.command(ctx, argv...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", d.spell(argv), err, out.String(), errs.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// step runs a long command that prints nothing while it works.
func (d *demo) step(ctx context.Context, what string, argv ...string) (string, error) {
	step := d.p.Step("%s", what)
	out, err := d.output(ctx, argv...)
	step.Done(err)
	return out, err
}

// show runs a command that people should see, with what it prints.
func (d *demo) show(ctx context.Context, argv ...string) error {
	fmt.Printf("\n$ %s\n", d.spell(argv))
	cmd := d.command(ctx, argv...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", d.spell(argv), err)
	}
	return nil
}

// spell writes a command as a person would type it.
func (d *demo) spell(argv []string) string {
	words := append([]string{}, argv...)
	if filepath.IsAbs(words[0]) {
		words[0] = filepath.Base(words[0])
	}
	for i, w := range words {
		if short, err := filepath.Rel(d.root, w); err == nil && filepath.IsAbs(w) && !strings.HasPrefix(short, "../../..") {
			words[i] = short
		}
		if strings.ContainsAny(words[i], " *{}'") {
			words[i] = "'" + words[i] + "'"
		}
	}
	return strings.Join(words, " ")
}

// explain shows what the cluster says after a failure.
func (d *demo) explain() {
	if d.kubeconfig == "" {
		return
	}
	ctx := context.Background()
	for _, argv := range [][]string{
		{d.kubectl, "-n", namespace, "get", "pods,site,ingestgateway,instrument", "-o", "wide"},
		{d.kubectl, "-n", namespace, "events", "--types=Warning"},
	} {
		if err := d.show(ctx, argv...); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	fmt.Fprintf(os.Stderr, "\nThe cluster stays up to be looked at: export KUBECONFIG=%s; make demo-down removes it.\n", d.kubeconfig)
}
