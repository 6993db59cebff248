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

// recordVersion is the format of record; another one was written by another version of this program.
const recordVersion = 1

// record is what a cluster must remember between commands. It is written before anything is made, so whatever bears the cluster's name
// and lies outside a record was not made by this program.
type record struct {
	Version int
	Base    int               // see addresses
	Nodes   int               // nodes 1 to Nodes exist, running or not
	Parts   map[string]string // program → absolute path, as they were when the cluster was made
}

func (c *Cluster) recordPath() string { return filepath.Join(c.Dir, "cluster.json") }

// load reads the record; without one the cluster is not made.
func (c *Cluster) load() error {
	body, err := os.ReadFile(c.recordPath())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(body, &c.rec)
	}
	if err == nil && c.rec.Version != recordVersion {
		err = fmt.Errorf("it has format %d, this program knows %d: take the cluster down with the version that made it", c.rec.Version, recordVersion)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", c.recordPath(), err)
	}
	return nil
}

func (c *Cluster) save() error {
	body, err := json.MarshalIndent(c.rec, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(c.recordPath(), body, 0o600)
}

// writeFile replaces a file as a whole, so that a reader or a crash never meets half of it.
func writeFile(path string, body []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	unfinished := path + ".unfinished"
	if err := os.WriteFile(unfinished, body, mode); err != nil {
		return err
	}
	return os.Rename(unfinished, path)
}

// foreign lists what bears this cluster's name although no record says that this program made it.
func (c *Cluster) foreign() []string {
	var found []string
	links, _ := filepath.Glob("/sys/class/net/" + c.Name + "-*")
	for _, path := range links {
		link := filepath.Base(path)
		if rest := strings.TrimPrefix(link, c.Name+"-"); rest == "br" || (len(rest) == 2 && rest[0] == 'n') {
			found = append(found, fmt.Sprintf("network link %s (remove it with `ip link del %s`)", link, link))
		}
	}
	spaces, _ := filepath.Glob("/run/netns/" + c.Name + "-node*")
	for _, path := range spaces {
		space := filepath.Base(path)
		found = append(found, fmt.Sprintf("network namespace %s (remove it with `ip netns del %s`)", space, space))
	}
	for _, path := range c.cgroupRoots() {
		if _, err := os.Stat(path); err == nil {
			found = append(found, "cgroup "+path)
		}
	}
	return found
}
