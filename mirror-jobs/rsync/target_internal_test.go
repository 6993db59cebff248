// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
)

// A declared address is never read as another kind of address: rsync takes user@host::module for a daemon.
func TestTarget(t *testing.T) {
	for want, ssh := range map[string]wire.MirrorRsyncSSH{
		"me@archive.example.org:/data/":   {Host: "archive.example.org", Path: "/data/"},
		"me@[2001:db8::7]:/data/":         {Host: "2001:db8::7", Path: "/data"},
		"me@archive.example.org:./:data/": {Host: "archive.example.org", Path: ":data"},
		"me@[::1]:./::data/x/":            {Host: "::1", Path: "::data/x"},
		"me@archive.example.org:/":        {Host: "archive.example.org", Path: "/"},
	} {
		ssh.User = "me"
		m := Mover{Config{MirrorRsync: wire.MirrorRsync{SSH: &ssh}}}
		if got := m.target(); got != want {
			t.Errorf("%+v becomes %s, want %s", ssh, got, want)
		}
	}
}

// Messages of the other side that rsync passes on cannot control a terminal.
func TestJudgeSaid(t *testing.T) {
	const said = "\x1b[2Jrsync: auth \u202efailed\r\x9b31m\n"
	var p *push.Problem
	if _, err := judge(exec.Command("sh", "-c", "exit 5").Run(), said); !errors.As(err, &p) || strings.ContainsAny(err.Error(), "\x1b\r\n\u202e") {
		t.Errorf("%q", err)
	}
	failed, err := judge(exec.Command("sh", "-c", "exit 23").Run(), `\x1b[2Jrsync: send_files failed to open "a.jpg": `+said)
	if err != nil {
		t.Fatal(err)
	}
	named, rest := failed.byPath([]string{"a.jpg"})
	if why := named["a.jpg"]; why == "" || rest != "" || strings.ContainsAny(why, "\x1b\r\n\u202e") {
		t.Errorf("%q, %q", why, rest)
	}
}
