// SPDX-License-Identifier: Apache-2.0

package bare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Load gives images to every node, present and future ones. Each is the path of a tar as `docker save` writes it.
func (c *Cluster) Load(ctx context.Context, tars ...string) error {
	if err := c.mustBeMade(); err != nil {
		return err
	}
	for _, path := range tars {
		if err := c.keepImage(path); err != nil {
			return err
		}
	}
	return c.step("images into the nodes", func() error { return c.loadKept(ctx) })
}

// keepImage keeps a tar for nodes that come later, under the image's name, so that a newer one replaces it.
func (c *Cluster) keepImage(path string) error {
	ref, _, err := inspect(path)
	if err != nil {
		return err
	}
	kept := filepath.Join(c.Dir, "images", strings.NewReplacer("/", "_", ":", "_").Replace(ref)+".tar")
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		return err
	}
	if err := removeIfThere(kept); err != nil {
		return err
	}
	if os.Link(path, kept) == nil {
		return nil
	}
	return copyFile(path, kept) // another disk
}

// inspect returns the name and the configuration's digest of the image in a tar.
func inspect(path string) (ref, config string, err error) {
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(path) })
	if err != nil {
		return "", "", fmt.Errorf("%s is not an image: %w", path, err)
	}
	if len(manifest) != 1 || len(manifest[0].RepoTags) != 1 {
		return "", "", fmt.Errorf("%s must hold one image with one tag", path)
	}
	return manifest[0].RepoTags[0], manifest[0].Config, nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// loadKept gives every running node the images that it lacks, all nodes at once.
func (c *Cluster) loadKept(ctx context.Context) error {
	tars, err := filepath.Glob(filepath.Join(c.Dir, "images", "*.tar"))
	if err != nil {
		return err
	}
	var wait sync.WaitGroup
	failures := make([]error, c.rec.Nodes)
	for n := 1; n <= c.rec.Nodes; n++ {
		if c.pid(NodeName(n)) == 0 {
			continue
		}
		wait.Go(func() {
			for _, tar := range tars {
				failures[n-1] = errors.Join(failures[n-1], c.loadInto(ctx, n, tar))
			}
		})
	}
	wait.Wait()
	return errors.Join(failures...)
}

// loadInto imports an image into one node, unless it was imported before.
func (c *Cluster) loadInto(ctx context.Context, n int, tar string) error {
	ref, config, err := inspect(tar)
	if err != nil {
		return err
	}
	mark := filepath.Join(c.nodeDir(n), "images", filepath.Base(tar))
	if has, err := os.ReadFile(mark); err == nil && string(has) == config {
		return nil
	}
	// The node's /run as this process sees it, by the node's first process.
	socket := fmt.Sprintf("/proc/%d/root%s", c.pid(NodeName(n)), criSocket)
	err = c.wait(ctx, "containerd of "+NodeName(n), func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, "ctr", "--address", socket, "version").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s; its log is %s", err, strings.TrimSpace(string(out)), c.logPath(NodeName(n)+"-containerd"))
		}
		return nil
	})
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", tar).CombinedOutput()
	if err != nil {
		return fmt.Errorf("load %s into %s: %w: %s", ref, NodeName(n), err, strings.TrimSpace(string(out)))
	}
	return writeFile(mark, []byte(config), 0o644)
}
