// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/substorm/substorm/hack/paths"
)

// cache knows where the programs of this checkout's modules lie, built or not.
type cache struct {
	tools string // the checkout's hack/tools
	dir   string // <cache>/parts
}

func openCache() (cache, error) {
	checkout, err := paths.Checkout()
	if err != nil {
		return cache{}, err
	}
	dir, err := paths.Cache()
	if err != nil {
		return cache{}, err
	}
	return cache{tools: filepath.Join(checkout, "hack", "tools"), dir: filepath.Join(dir, "parts")}, nil
}

// moduleDir returns the folder for the programs of one module, <module>-<hash>. Programs of one module share it, so etcd's folder is also
// the folder that controller-runtime's envtest wants in KUBEBUILDER_ASSETS.
func (c cache) moduleDir(module string) (string, error) {
	hash, err := c.hash(module)
	if err != nil {
		return "", err
	}
	return filepath.Join(c.dir, module+"-"+hash), nil
}

// hash covers everything that decides what the programs of a module are: sources, versions, flags, compiler, platform.
func (c cache) hash(module string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	root := filepath.Join(c.tools, module)
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("read the module of %s: %w", module, err)
	}
	for _, t := range All() {
		if t.Module != module {
			continue
		}
		flags, err := t.flags(string(goMod))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %s %q\n", t.Name, t.Package, flags)
	}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if name := entry.Name(); name != "go.mod" && name != "go.sum" && filepath.Ext(name) != ".go" {
			return nil
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %d\n", strings.TrimPrefix(path, root), len(body))
		h.Write(body)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("hash %s: %w", root, err)
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

// Prune removes the cached programs of other versions than this checkout's and returns what it removed.
func Prune() ([]string, error) {
	c, err := openCache()
	if err != nil {
		return nil, err
	}
	var keep []string
	for _, t := range All() {
		dir, err := c.moduleDir(t.Module)
		if err != nil {
			return nil, err
		}
		keep = append(keep, dir)
	}
	found, err := filepath.Glob(filepath.Join(c.dir, "*-*"))
	if err != nil {
		return nil, err
	}
	var removed []string
	for _, dir := range found {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || slices.Contains(keep, dir) {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return removed, fmt.Errorf("prune: %w", err)
		}
		removed = append(removed, dir)
	}
	return removed, nil
}
