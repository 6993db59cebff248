// SPDX-License-Identifier: Apache-2.0

package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// multiarch are the folders in which Debian has libraries of one architecture.
var multiarch = []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib"}

// nsswitch says where names of hosts are looked for.
const nsswitch = "hosts: files dns\n"

// hostLayer has programs of this machine in /usr/bin, the libraries that they name, at the places where their loader looks,
// and the licenses of Debian's packages.
func hostLayer(programs []string) (*layer, error) {
	files := map[string]string{} // in the image, of this machine
	for _, name := range programs {
		program, err := exec.LookPath(name)
		if err != nil {
			return nil, fmt.Errorf("it carries %s: install the packages rsync and openssh-client: %w", name, err)
		}
		files["usr/bin/"+name] = program
		if err := libraries(program, files); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"rsync", "openssh-client"} {
		license := "/usr/share/doc/" + name + "/copyright"
		if _, err := os.Stat(license); err == nil {
			files[strings.TrimPrefix(license, "/")] = license
		}
	}
	l := &layer{}
	for _, dir := range foldersOf(slices.Collect(maps.Keys(files))) {
		l.dir(dir, 0o755)
	}
	l.file("etc/nsswitch.conf", 0o644, []byte(nsswitch))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		body, err := os.ReadFile(files[name])
		if err != nil {
			return nil, err
		}
		mode := int64(0o644)
		if strings.HasPrefix(name, "usr/bin/") || strings.Contains(path.Base(name), "ld-linux") {
			mode = 0o755
		}
		l.file(name, mode, body)
	}
	return l, nil
}

// foldersOf are those of some files, each behind the one that holds it.
func foldersOf(files []string) []string {
	all := map[string]bool{}
	for _, name := range files {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			all[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// libraries adds those that a program names, and those that these name, and its loader.
func libraries(program string, files map[string]string) error {
	f, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		loader := make([]byte, p.Filesz)
		if _, err := p.ReadAt(loader, 0); err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
		name := strings.TrimRight(string(loader), "\x00")
		files[strings.TrimPrefix(name, "/")] = name
	}
	names, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "ld-linux") {
			continue // the loader
		}
		library, err := find(name)
		if err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
		at := strings.TrimPrefix(library, "/")
		if _, known := files[at]; known {
			continue
		}
		files[at] = library
		if err := libraries(library, files); err != nil {
			return err
		}
	}
	return nil
}

// find returns where a library lies.
func find(name string) (string, error) {
	for _, dir := range multiarch {
		library := filepath.Join(dir, name)
		if _, err := os.Stat(library); err == nil {
			return library, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("cannot find its library %s in %v", name, multiarch)
}
