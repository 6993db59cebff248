// SPDX-License-Identifier: Apache-2.0

package bare

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// volumesPerNode is how many pods with a volume a node can carry.
const volumesPerNode = 6

// Volume is one static local volume.
type Volume struct {
	Name  string // of the PersistentVolume: <node>-<number>
	Node  string
	Phase string // Available, Bound, Released or Failed
	Claim string // namespace/name of the claim that has or had it, or ""
}

// makeVolumes makes the folders of a node's volumes and returns the manifest that declares them.
func (c *Cluster) makeVolumes(n int) ([]byte, error) {
	var manifest []byte
	for v := 1; v <= volumesPerNode; v++ {
		if err := os.MkdirAll(c.volumeDir(n, v), 0o755); err != nil {
			return nil, err
		}
		one, err := render("volume.yaml", map[string]any{"Node": NodeName(n), "Volume": v})
		if err != nil {
			return nil, err
		}
		manifest = append(manifest, one...)
	}
	return manifest, nil
}

func (c *Cluster) volumeDir(n, v int) string {
	return filepath.Join(c.nodeDir(n), "var/lib/volumes", strconv.Itoa(v))
}

// Volumes lists the volumes. With clear it first empties those whose claim was deleted and makes them available again: nothing else does,
// for there is no provisioner.
func (c *Cluster) Volumes(ctx context.Context, clear bool) ([]Volume, error) {
	if err := c.mustBeMade(); err != nil {
		return nil, err
	}
	volumes, err := c.volumes(ctx)
	if err != nil || !clear {
		return volumes, err
	}
	for _, v := range volumes {
		if v.Phase != "Released" && v.Phase != "Failed" {
			continue
		}
		if err := c.clearVolume(ctx, v); err != nil {
			return nil, err
		}
		c.P.Line("cleared %s, which %s had", v.Name, v.Claim)
	}
	return c.volumes(ctx)
}

func (c *Cluster) clearVolume(ctx context.Context, v Volume) error {
	var node, number int
	if _, err := fmt.Sscanf(v.Name, "node%d-%d", &node, &number); err != nil {
		return fmt.Errorf("volume %s does not belong to this cluster: clear it by hand", v.Name)
	}
	// The folder itself is made again too: the last pod's group owns it.
	dir := c.volumeDir(node, number)
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("clear volume %s: %w", v.Name, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("clear volume %s: %w", v.Name, err)
	}
	_, err := c.kubectl(ctx, nil, "patch", "persistentvolume", v.Name, "--type=json", `--patch=[{"op":"remove","path":"/spec/claimRef"}]`)
	return err
}

func (c *Cluster) volumes(ctx context.Context) ([]Volume, error) {
	out, err := c.kubectl(ctx, nil, "get", "persistentvolumes", "--output=json")
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name   string
				Labels map[string]string
			}
			Spec struct {
				ClaimRef *struct{ Namespace, Name string }
			}
			Status struct{ Phase string }
		}
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("read the volumes: %w", err)
	}
	var volumes []Volume
	for _, item := range list.Items {
		v := Volume{Name: item.Metadata.Name, Node: item.Metadata.Labels["kubernetes.io/hostname"], Phase: item.Status.Phase}
		if ref := item.Spec.ClaimRef; ref != nil {
			v.Claim = strings.Join([]string{ref.Namespace, ref.Name}, "/")
		}
		volumes = append(volumes, v)
	}
	return volumes, nil
}
