// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/substorm/substorm/hack/compile"
	"github.com/substorm/substorm/hack/parts/tool"
	"github.com/substorm/substorm/hack/paths"
	"github.com/substorm/substorm/hack/progress"
)

// Built is an image that lies on disk.
type Built struct {
	Ref    string // such as substorm/operator:dev
	Path   string // a tar that `ctr images import`, `docker load` and `kind load image-archive` take
	Digest string // of the image's configuration: what Docker and Kubernetes call the image's ID
}

// staleAfter is how long an older build of the same image is kept: it may be loading.
const staleAfter = time.Hour

// Build makes the image unless the very same one lies in the cache already. The same sources give the same image.
func Build(ctx context.Context, p *progress.Printer, imageName, tag string) (Built, error) {
	img, err := Find(imageName)
	if err != nil {
		return Built{}, err
	}
	ref, err := name.NewTag(img.Name + ":" + tag)
	if err != nil {
		return Built{}, fmt.Errorf("image %s: %w (the tag comes from VERSION)", img.Name, err)
	}
	binary, err := img.binary(ctx, p, tag)
	if err != nil {
		return Built{}, err
	}
	step := p.Step("image %s:%s", img.Name, tag)
	built, err := img.write(ref, binary, tag)
	step.Done(err)
	return built, err
}

// write assembles the image and keeps it in the cache under its digest.
func (i Image) write(ref name.Tag, binary, tag string) (Built, error) {
	checkout, err := paths.Checkout()
	if err != nil {
		return Built{}, err
	}
	cache, err := paths.Cache()
	if err != nil {
		return Built{}, err
	}
	assembled, err := i.assemble(filepath.Join(checkout, "hack", "images", "rootfs"), binary, tag)
	if err != nil {
		return Built{}, fmt.Errorf("assemble %s: %w", ref, err)
	}
	digest, err := assembled.ConfigName()
	if err != nil {
		return Built{}, fmt.Errorf("assemble %s: %w", ref, err)
	}
	dir := filepath.Join(cache, "images")
	stem := strings.ReplaceAll(i.Name, "/", "-") + "-" + tag + "-"
	built := Built{Ref: i.Name + ":" + tag, Path: filepath.Join(dir, stem+digest.Hex[:12]+".tar"), Digest: digest.String()}
	if _, err := os.Stat(built.Path); err == nil {
		return built, nil
	}
	if err := save(built.Path, ref, assembled); err != nil {
		return Built{}, fmt.Errorf("write image %s: %w", ref, err)
	}
	return built, removeStale(dir, stem, built.Path)
}

func save(path string, ref name.Tag, img v1.Image) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".unfinished-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(tarball.Write(ref, img, f), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// removeStale removes older builds of one image and tag.
func removeStale(dir, stem, keep string) error {
	found, err := filepath.Glob(filepath.Join(dir, stem+strings.Repeat("[0-9a-f]", 12)+".tar"))
	if err != nil {
		return err
	}
	for _, path := range found {
		if info, err := os.Stat(path); path == keep || err != nil || time.Since(info.ModTime()) < staleAfter {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// binary returns the path of the static binary that the image carries.
func (i Image) binary(ctx context.Context, p *progress.Printer, version string) (string, error) {
	if i.Tool == "" {
		return i.compile(ctx, p, version)
	}
	if runtime.GOOS != "linux" {
		return "", fmt.Errorf("image %s is assembled on Linux only: use `docker build --target %s .`", i.Name, i.Binary)
	}
	return tool.Build(ctx, p, i.Tool)
}

// compile builds a program in its own folder, so with the versions that its module requires. The output has a fixed
// place, so that go can skip what did not change.
func (i Image) compile(ctx context.Context, p *progress.Printer, version string) (string, error) {
	checkout, err := paths.Checkout()
	if err != nil {
		return "", err
	}
	cache, err := paths.Cache()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(checkout, i.Package)); err != nil {
		return "", fmt.Errorf("image %s: %w", i.Name, err)
	}
	out := filepath.Join(cache, "bin", fmt.Sprintf("%x", sha256.Sum256([]byte(checkout)))[:8], i.Binary)
	step := p.Step("compile %s", i.Package)
	err = compile.Program(ctx, filepath.Join(checkout, i.Package), out, version)
	step.Done(err)
	if err != nil {
		return "", err
	}
	return out, nil
}
