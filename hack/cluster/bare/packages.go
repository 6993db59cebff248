// SPDX-License-Identifier: Apache-2.0

package bare

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/substorm/substorm/hack/paths"
)

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

// checkNeeds refuses a machine that lacks what the bare cluster needs, and has Debian install what packages bring. The list
// is in hack/needs.sh, which targets of the Makefile run before they build anything.
func checkNeeds(ctx context.Context) error {
	root, err := paths.Checkout()
	if err != nil {
		return err
	}
	needs := exec.CommandContext(ctx, filepath.Join(root, "hack", "needs.sh"), "bare")
	var problems strings.Builder
	needs.Stdout, needs.Stderr = os.Stderr, &problems
	if err := needs.Run(); err != nil {
		return fmt.Errorf("hack/needs.sh: %w: %s", err, strings.TrimSpace(problems.String()))
	}
	return nil
}
