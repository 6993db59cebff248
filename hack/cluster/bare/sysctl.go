// SPDX-License-Identifier: Apache-2.0

package bare

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// kubeletSysctls are the settings of the whole machine that the kubelet changes when it starts.
var kubeletSysctls = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// sysctlPath lies above the clusters: the first one finds the settings as they were, and only the last one that goes
// may put them back.
func (c *Cluster) sysctlPath() string { return filepath.Join(filepath.Dir(c.Dir), "sysctl.json") }

func (c *Cluster) saveSysctls() error {
	if _, err := os.Stat(c.sysctlPath()); err == nil {
		return nil
	}
	before := map[string]string{}
	for _, name := range kubeletSysctls {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			return fmt.Errorf("remember a sysctl: %w", err)
		}
		before[name] = strings.TrimSpace(string(value))
	}
	body, err := json.MarshalIndent(before, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(c.sysctlPath(), body, 0o644)
}

// restoreSysctls puts the settings back when no cluster is left.
func (c *Cluster) restoreSysctls() error {
	left, err := filepath.Glob(filepath.Join(filepath.Dir(c.Dir), "*", "cluster.json"))
	if err != nil || len(left) > 0 {
		return err
	}
	body, err := os.ReadFile(c.sysctlPath())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	before := map[string]string{}
	if err == nil {
		err = json.Unmarshal(body, &before)
	}
	for name, value := range before {
		err = errors.Join(err, os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644))
	}
	if err != nil {
		return fmt.Errorf("restore the sysctls in %s: %w", c.sysctlPath(), err)
	}
	return removeIfThere(c.sysctlPath())
}
