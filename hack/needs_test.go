// SPDX-License-Identifier: Apache-2.0

// Package hack_test tests the scripts of this folder.
package hack_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/substorm/substorm/hack/images/image"
)

// TestTargetsCheckFirst: each target checks what it needs before all else, but those that need nothing, or begin with another target.
func TestTargetsCheckFirst(t *testing.T) {
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	needs := map[string]string{
		"try": "build", "pictures": "pictures", "demo": "cluster images demo", "demo-storm": "cluster images demo", "test": "test", "e2e": "cluster images",
		"images": "images", "cluster-up": "cluster", "help": "", "e2e-all": "",
	}
	first := regexp.MustCompile(`(?m)^([a-z0-9-]+):.* ## .*\n\t(.*)$`)
	found := first.FindAllStringSubmatch(string(text), -1)
	for _, m := range found {
		want, has := needs[m[1]]
		if !has {
			want = "build"
		}
		if want != "" && m[2] != "@./hack/needs.sh "+want {
			t.Errorf("make %s begins with %q: it is to check with `./hack/needs.sh %s`", m[1], m[2], want)
		}
		delete(needs, m[1])
	}
	for target := range needs {
		t.Errorf("the Makefile has no target %s", target)
	}
	if targets := strings.Count(string(text), ": ## ") + strings.Count(string(text), ": e2e ## "); len(found) != targets {
		t.Errorf("%d targets with a command, of %d", len(found), targets)
	}
}

// TestNeedsOfImages: what images carry of this machine is looked for before they are built.
func TestNeedsOfImages(t *testing.T) {
	text, err := os.ReadFile("needs.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range image.Names() {
		carries, err := image.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, program := range carries.Programs {
			if !regexp.MustCompile(`(?m)^` + program + ` .* images\b`).Match(text) {
				t.Errorf("image %s carries %s, and hack/needs.sh does not look for it", name, program)
			}
		}
	}
}

// bareDebian makes a Debian that has make, git and what they depend on, and, of this machine, Go and the checkout. It returns
// what runs a command in the checkout there.
func bareDebian(t *testing.T) func(command string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		t.Skip("mmdebstrap is not installed (apt-get install mmdebstrap)")
	}
	if os.Getuid() != 0 {
		t.Skip("this needs root, to change the root directory")
	}
	checkout, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "debian")
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil {
		t.Skipf("this needs the privilege to mount: %v: %s", err, out)
	}
	release, err := exec.Command("sh", "-c", ". /etc/os-release && echo $VERSION_CODENAME").Output()
	if err != nil {
		t.Skip("this machine does not say which Debian it is: ", err)
	}
	out, err := exec.Command("mmdebstrap", "--variant=minbase", "--include=make,git", strings.TrimSpace(string(release)), root).CombinedOutput()
	if err != nil {
		t.Skipf("no Debian can be made here: %v\n%s", err, out)
	}
	const script = `set -e
mkdir -p "$1/src" "$1/usr/local/go"
mount --bind "$2" "$1/src"
mount --bind "$3" "$1/usr/local/go"
exec chroot "$1" env -i HOME=/root PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -c "cd /src && $4"`
	env, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	goroot := strings.TrimSpace(string(env))
	return func(command string) (string, error) {
		cmd := exec.Command("unshare", "--mount", "sh", "-c", script, "sh", root, checkout, goroot, command)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		err := cmd.Run()
		return said.String(), err
	}
}

// TestNeedsOnABareMachine runs the checks of README's commands on a Debian that has Go, make and git alone.
func TestNeedsOnABareMachine(t *testing.T) {
	bare := bareDebian(t)
	for _, target := range []string{"build", "test"} { // of make try and make test
		said, err := bare("hack/needs.sh --check " + target)
		if err == nil || !strings.HasSuffix(said, "This machine lacks ca-certificates (Debian's names): apt-get install --no-install-recommends ca-certificates\n") {
			t.Errorf("needs.sh --check %s: %v\n%s", target, err, said)
		}
	}
	said, err := bare("hack/needs.sh --check cluster images demo") // of make demo
	for _, want := range []string{" wget\n", " rsync ", " openssh-client ", " containerd ", " nftables ", " iproute2 ", " runc ", " containernetworking-plugins ", "cgroup v1 hierarchy"} {
		if err == nil || !strings.Contains(said, want) {
			t.Errorf("needs.sh --check cluster images demo: %v, not a word of %q:\n%s", err, want, said)
		}
	}
	if said, err = bare("mkdir -p /etc/ssl/certs && echo test > /etc/ssl/certs/ca-certificates.crt && hack/needs.sh test"); err != nil || !strings.Contains(said, "are skipped") || !strings.Contains(said, "rsync") {
		t.Errorf("needs.sh test, with authorities: %v\n%s", err, said)
	}
	if said, err = bare("rm /usr/bin/git && hack/needs.sh --check build"); err == nil || !strings.Contains(said, "lacks git ") {
		t.Errorf("needs.sh --check build, without git: %v\n%s", err, said)
	}
}
