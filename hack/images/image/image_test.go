// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/substorm/substorm/hack/paths"
)

func assembled(t *testing.T, i Image, body, version string) v1.Image {
	t.Helper()
	checkout, err := paths.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "binary")
	if err := os.WriteFile(binary, []byte(body), 0o700); err != nil {
		t.Fatal(err)
	}
	img, err := i.assemble(filepath.Join(checkout, "hack", "images", "rootfs"), binary, version)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func digest(t *testing.T, img v1.Image) string {
	t.Helper()
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func TestSameInputGivesSameImage(t *testing.T) {
	i := All()[0]
	first := digest(t, assembled(t, i, "one", "dev"))
	if again := digest(t, assembled(t, i, "one", "dev")); again != first {
		t.Errorf("the same input gave %s, then %s", first, again)
	}
	if other := digest(t, assembled(t, i, "two", "dev")); other == first {
		t.Errorf("another binary gave the same image %s", first)
	}
	if other := digest(t, assembled(t, i, "one", "v1")); other == first {
		t.Errorf("another version gave the same image %s", first)
	}
}

func TestImageHolds(t *testing.T) {
	i := All()[0]
	files := mutate.Extract(assembled(t, i, "the program", "dev"))
	defer files.Close()
	got := map[string]int64{}
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = h.Mode
	}
	want := map[string]int64{"tmp": 0o1777, "etc": 0o755, "etc/ssl": 0o755, "etc/ssl/certs": 0o755, "etc/passwd": 0o644,
		"etc/group": 0o644, "etc/ssl/certs/ca-certificates.crt": 0o644, i.Binary: 0o755}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files and modes (-want +got):\n%s", diff)
	}
}

// TestProgramsRun runs programs that an image carries with the image as their root: they find their libraries there.
func TestProgramsRun(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("this needs the privilege to change the root directory")
	}
	i, err := Find("mirror-jobs")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range i.Programs {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("install rsync and openssh-client: ", err)
		}
	}
	root := t.TempDir()
	files := mutate.Extract(assembled(t, i, "x", "dev"))
	defer files.Close()
	untar := exec.Command("tar", "-x", "-C", root)
	untar.Stdin = files
	if out, err := untar.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// As a container has it.
	if out, err := exec.Command("sh", "-c", "mkdir "+root+"/dev && mknod -m 666 "+root+"/dev/null c 1 3").CombinedOutput(); err != nil {
		t.Skipf("this needs the privilege to make devices: %v: %s", err, out)
	}
	for name, flag := range map[string]string{"rsync": "--version", "ssh": "-V"} {
		cmd := exec.Command("/usr/bin/"+name, flag)
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: nonroot, Gid: nonroot}}
		cmd.Dir, cmd.Env = "/", nil
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// TestDockerfileDescribesTheSameImages reads the Dockerfile's targets and compares what they configure. The link in
// hack/images makes go test see that the Dockerfile changed: it looks at files inside the test's own module only.
func TestDockerfileDescribesTheSameImages(t *testing.T) {
	checkout, err := paths.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(checkout, "hack", "images", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := stages(string(text))
	for _, i := range All() {
		if i.ClusterOnly {
			continue
		}
		name := strings.TrimPrefix(i.Name, "substorm/")
		stage, ok := targets[name]
		if !ok || !strings.HasPrefix(stage[0], "FROM base ") {
			t.Errorf("the Dockerfile has no target %s on top of base", name)
			continue
		}
		all := strings.Join(append(targets["base"], stage...), "\n") + "\n"
		config, err := assembled(t, i, "x", "$VERSION").ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			`ENTRYPOINT ["` + config.Config.Entrypoint[0] + `"]`,
			"COPY --from=build-" + name + " /out/" + i.Binary + " " + config.Config.Entrypoint[0],
			"USER " + config.Config.User,
			"ENV " + config.Config.Env[0],
			"WORKDIR " + config.Config.WorkingDir,
		}
		for key, value := range config.Config.Labels {
			want = append(want, key+`="`+value+`"`)
		}
		for _, line := range want {
			if !strings.Contains(all, line) {
				t.Errorf("target %s of the Dockerfile lacks %s", name, line)
			}
		}
		if len(i.Programs) > 0 && !strings.Contains(all, "COPY --from=programs-"+name+" /out/ /") {
			t.Errorf("target %s of the Dockerfile lacks the programs %v", name, i.Programs)
		}
		builds := strings.Join(targets["build-"+name], "\n")
		if i.Package != "" && !strings.Contains(builds, i.Package) {
			t.Errorf("stage build-%s of the Dockerfile does not build %s", name, i.Package)
		}
	}
}

// stages splits a Dockerfile into the lines of each named stage, the FROM line first.
func stages(text string) map[string][]string {
	all := map[string][]string{}
	current := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "FROM ") {
			_, current, _ = strings.Cut(line, " AS ")
		}
		if current != "" {
			all[current] = append(all[current], line)
		}
	}
	return all
}

func TestFind(t *testing.T) {
	for _, name := range []string{"operator", "substorm/operator"} {
		if i, err := Find(name); err != nil || i.Binary != "operator" {
			t.Errorf("Find(%q) = %v, %v", name, i, err)
		}
	}
	if _, err := Find("nobody"); err == nil || !strings.Contains(err.Error(), "substorm/minio") {
		t.Errorf("Find of an unknown name should list the known ones, got %v", err)
	}
}
