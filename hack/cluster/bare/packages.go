// SPDX-License-Identifier: Apache-2.0

package bare

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/substorm/substorm/hack/progress"
)

// debianPackages has, for each package, a program or plugin that it brings and that is looked for.
var debianPackages = map[string]string{
	"containerd":                  "containerd",
	"runc":                        "runc",
	"nftables":                    "nft",
	"iproute2":                    "ip",
	"util-linux":                  "nsenter",
	"containernetworking-plugins": "ptp",
}

// pluginDirs are where distributions and upstream put the network plugins.
var pluginDirs = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

// cniPlugins returns the folder of the network plugins, or "".
func cniPlugins() string {
	for _, dir := range pluginDirs {
		if _, err := os.Stat(filepath.Join(dir, "ptp")); err == nil {
			return dir
		}
	}
	return ""
}

func missingPackages() []string {
	var missing []string
	for name, program := range debianPackages {
		if program == "ptp" {
			if cniPlugins() == "" {
				missing = append(missing, name)
			}
		} else if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, name)
		}
	}
	return missing
}

// installPackages has Debian install what is missing.
func installPackages(ctx context.Context, p *progress.Printer) error {
	missing := missingPackages()
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("the bare cluster needs %s: install them (the names are Debian's) and run this again", strings.Join(missing, ", "))
	}
	step := p.Step("install %s with apt-get", strings.Join(missing, ", "))
	install := append([]string{"install", "-y", "--no-install-recommends"}, missing...)
	err := aptGet(ctx, step, install...)
	if err != nil { // most often because the machine never fetched the lists
		if err = aptGet(ctx, step, "update"); err == nil {
			err = aptGet(ctx, step, install...)
		}
	}
	step.Done(err)
	if err != nil {
		return fmt.Errorf("install packages: %w", err)
	}
	if missing := missingPackages(); len(missing) > 0 {
		return fmt.Errorf("after installing them, these packages still lack what is needed: %s", strings.Join(missing, ", "))
	}
	return nil
}

func aptGet(ctx context.Context, step *progress.Step, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		step.Detail("%s", lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", args[0], err, errors.String())
	}
	return nil
}
