// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/substorm/substorm/internal/wire"
)

// partnerManifest declares a partner and its server.
//
//go:embed partner.yaml
var partnerManifest string

// pull copies the archive as another institute would, into a folder, and asks again what changed.
func (w site) pull(ctx context.Context, s sent) error {
	folder := filepath.Join(w.dir, "copy")
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	for range 2 {
		if err := w.show(ctx, w.substorm, "mirror", "pull", w.base, folder, "--instrument", camera); err != nil {
			return err
		}
	}
	if err := w.show(ctx, w.substorm, "mirror", "verify", folder); err != nil {
		return err
	}
	found := map[wire.Digest]bool{}
	err := filepath.WalkDir(filepath.Join(folder, camera), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		found[sha256.Sum256(body)] = true
		return err
	})
	if err != nil {
		return err
	}
	return s.all("the copy", found)
}

// partner gives a partner what was sent, by rsync into a pod, and looks what that has.
func (w site) partner(ctx context.Context, s sent) error {
	manifest := filepath.Join(w.dir, "partner.yaml")
	if err := os.WriteFile(manifest, []byte(partnerManifest), 0o644); err != nil {
		return err
	}
	if err := w.show(ctx, w.kubectl, "-n", namespace, "apply", "-f", manifest); err != nil {
		return err
	}
	for _, what := range []string{"pod/rsync-partner", "mirrorpartner/university"} {
		if _, err := w.step(ctx, what+" ready", w.kubectl, "-n", namespace, "wait", "--for=condition=Ready", "--timeout=5m", what); err != nil {
			return err
		}
	}
	if err := w.show(ctx, w.substorm, "mirror", "run", "university", "-n", namespace, "--wait", "3m"); err != nil {
		return err
	}
	if err := w.show(ctx, w.kubectl, "-n", namespace, "get", "mirrorpartners"); err != nil {
		return err
	}
	has, err := w.output(ctx, w.kubectl, "-n", namespace, "exec", "rsync-partner", "--", "rsync", "--list-only", "-r", "/data/aurora/"+camera+"/")
	if err != nil {
		return err
	}
	if n := strings.Count("\n"+has, "\n-"); n != len(s.frames) {
		return fmt.Errorf("the partner has %d frames, and %d were sent:\n%s", n, len(s.frames), has)
	}
	return nil
}
