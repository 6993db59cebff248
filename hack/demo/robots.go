// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/substorm/substorm/internal/wire"
)

// camera is the Instrument that sends frames, see docs/samples.
const camera = "allsky-camera"

// mirror copies the camera's archive with wget, as partners' robots do, twice: the second
// time nothing is sent again.
func (w site) mirror(ctx context.Context, s sent) error {
	wget, err := exec.LookPath("wget")
	if err != nil {
		return err
	}
	folder := filepath.Join(w.dir, "mirror")
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if _, err := w.wget(ctx, wget, folder); err != nil {
		return err
	}
	again, err := w.wget(ctx, wget, folder)
	if err != nil {
		return err
	}
	if again > 0 {
		return fmt.Errorf("wget fetched %d objects again, and nothing changed", again)
	}
	found := map[wire.Digest]bool{}
	err = filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
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
	return s.all("the mirror", found)
}

// wget returns how many objects it fetched into a folder.
func (w site) wget(ctx context.Context, program, folder string) (fetched int, err error) {
	command := w.command(ctx, program, "-r", "-N", "-np", "-nH", "-nv", "-P", folder, w.base+"/archive/"+camera+"/")
	out, err := command.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s: %w\n%s", w.spell(command.Args), err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, " -> ") && !strings.Contains(line, "index.html") && !strings.Contains(line, "robots.txt") {
			fetched++
		}
	}
	w.p.Line("%s: %d objects fetched", w.spell(command.Args), fetched)
	return fetched, nil
}

// readBundle fetches the camera's objects as one tar, and compares their bytes.
func (w site) readBundle(ctx context.Context, s sent) error {
	_, body, err := w.get(ctx, "/bundle/"+camera+".tar", http.StatusOK)
	if err != nil {
		return err
	}
	found := map[wire.Digest]bool{}
	for r := tar.NewReader(bytes.NewReader(body)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return s.all("the bundle", found)
		}
		if err != nil {
			return fmt.Errorf("bundle of %s: %w", camera, err)
		}
		digest := sha256.New()
		if _, err := io.Copy(digest, r); err != nil {
			return fmt.Errorf("%s of the bundle: %w", h.Name, err)
		}
		found[wire.Digest(digest.Sum(nil))] = true
	}
}

// readAtom fetches the document by which people follow the camera.
func (w site) readAtom(ctx context.Context, s sent) error {
	_, body, err := w.get(ctx, "/atom/"+camera+".xml", http.StatusOK)
	if err != nil {
		return err
	}
	var feed struct {
		Entries []struct {
			Title string `xml:"title"`
		} `xml:"entry"`
	}
	if err := xml.Unmarshal(body, &feed); err != nil {
		return fmt.Errorf("Atom document of %s: %w", camera, err)
	}
	if len(feed.Entries) < len(s.frames) {
		return fmt.Errorf("the Atom document has %d entries, %d frames were sent", len(feed.Entries), len(s.frames))
	}
	w.p.Line("%d entries, the newest: %s", len(feed.Entries), feed.Entries[0].Title)
	return nil
}

// all says which frames are missing.
func (s sent) all(where string, found map[wire.Digest]bool) error {
	for digest, file := range s.frames {
		if !found[digest] {
			return fmt.Errorf("%s lacks %s, SHA-256 %s", where, filepath.Base(file), digest)
		}
	}
	return nil
}
