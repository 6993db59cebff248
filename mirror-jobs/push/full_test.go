// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/rsync"
)

// TestFull: the partner's disk is full in the middle of an object. No half file has the object's name, what came before stays, and once
// there is space the next run brings the rest.
func TestFull(t *testing.T) {
	l := newLab(t)
	address, dir := testenv.RsyncDaemon(t, "")
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1m", "substorm-partner-test", dir).CombinedOutput(); err != nil {
		t.Skipf("mount a small disk: %v: %s: it needs CAP_SYS_ADMIN", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	l.has = func() map[string]string { return l.read(dir) }
	var err error
	if l.mover, err = rsync.New(rsync.Config{MirrorRsync: wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: address, Module: "data"}}, Credentials: t.TempDir(), Scratch: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"allsky-1/1.jpg": "small", "allsky-1/2.jpg": strings.Repeat("large", 500_000)}
	for path, text := range want {
		l.Wait(l.Put(archivetest.Camera, filepath.Base(path), text, at(storm)))
	}
	var p *push.Problem
	if err := l.run(); !errors.As(err, &p) || p.Reason != wire.MirrorReasonPartnerFull {
		t.Fatalf("the disk is full, and the run says %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "allsky-1", "2.jpg")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a half file has the name of an object: %v", err)
	}
	if has := l.mirrored("2015-03-17"); has.Objects > 1 {
		t.Errorf("the ledger says that the partner has %+v", has)
	}
	if out, err := exec.Command("mount", "-o", "remount,size=16m", dir).CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("%w: %s", err, out))
	}
	if err := l.run(); err != nil {
		t.Fatal(err)
	}
	l.want("once there is space", want)
	if has := l.mirrored("2015-03-17"); has.Objects != 2 {
		t.Errorf("the ledger says that the partner has %+v", has)
	}
}

// TestFullMakesSpace: the partner's disk is full of what must go. The run that finds it full removes that, and the next one brings the rest.
func TestFullMakesSpace(t *testing.T) {
	l := newLab(t)
	dir := l.toDaemon("")
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1m", "substorm-partner-test", dir).CombinedOutput(); err != nil {
		t.Skipf("mount a small disk: %v: %s: it needs CAP_SYS_ADMIN", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	old := l.Put(archivetest.Camera, "1.jpg", strings.Repeat("1", 800_000), at(storm))
	l.Wait(old)
	l.push(1)
	l.become(&old, wire.StateRetracted, "a lamp")
	text := strings.Repeat("2", 800_000)
	l.Wait(l.Put(archivetest.Camera, "2.jpg", text, at(storm.Add(time.Hour))))
	var p *push.Problem
	if err := l.run(); !errors.As(err, &p) || p.Reason != wire.MirrorReasonPartnerFull || l.last.Report().Removed != 1 {
		t.Fatalf("the disk is full, and the run says %v: %+v", err, l.last.Report())
	}
	l.push(1)
	l.want("there is space", map[string]string{"allsky-1/2.jpg": text})
}
