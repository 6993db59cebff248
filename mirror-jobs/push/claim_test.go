// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"os/user"
	"path/filepath"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/rsync"
)

// toSSH has the partner be a host with ssh.
func (l *lab) toSSH() {
	l.Helper()
	port, credentials := l.sshd()
	me, err := user.Current()
	if err != nil {
		l.Fatal(err)
	}
	dir := filepath.Join(l.TempDir(), "partner")
	l.has = func() map[string]string { return l.read(dir) }
	l.mover, err = rsync.New(rsync.Config{
		MirrorRsync: wire.MirrorRsync{SSH: &wire.MirrorRsyncSSH{Host: "127.0.0.1", Port: port, User: me.Username, Path: dir}}, Credentials: credentials, Scratch: l.TempDir(),
	})
	if err != nil {
		l.Fatal(err)
	}
}

// An earlier version has the size and the second of receipt of the current one, or its bytes. A retraction or purge of the earlier version
// leaves the current version's copy, whether the partner had the earlier one or not.
func TestSameSizeAndSecond(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, template string
		to             func(*lab)
	}{
		{"rsync", "", movers["rsync"]}, {"rsync by name", "{instrument}/{name}", movers["rsync"]}, {"rsync by year", "{instrument}/{year}/{name}", movers["rsync"]},
		{"ssh", "", (*lab).toSSH}, {"s3", "{instrument}/{name}", movers["s3"]},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			c.to(l)
			l.entry.Template, l.entry.SafetyStopPercent, l.entry.Retractions = c.template, 100, wire.MirrorTombstone
			gone := map[string]wire.State{"1.txt": wire.StateRetracted, "2.txt": wire.StatePurged}
			want, first := map[string]string{}, map[string]wire.Record{}
			for _, had := range []string{"had ", "new "} {
				for name := range gone {
					for _, text := range []string{"w1aaaa", "w2bbbb"} {
						name, text := had+text+name, text
						first[name] = l.Put(archivetest.Camera, name, "w1aaaa", named(name), at(storm.Add(100*time.Millisecond)))
						l.Wait(first[name])
						want[name] = text
					}
				}
				if had == "had " {
					l.push(4)
				}
			}
			for name, text := range want {
				l.Wait(l.Put(archivetest.Camera, name, text, named(name), at(storm.Add(200*time.Millisecond)), newer(2, first[name])))
			}
			if err := l.run(); err != nil {
				t.Fatal(err)
			}
			for name, one := range first {
				l.become(&one, gone[name[len(name)-len("1.txt"):]], "a lamp", func(r *wire.Record) { r.Outdated = true })
			}
			for range 2 {
				if err := l.run(); err != nil {
					t.Fatal(err)
				}
				has := l.has()
				for name, text := range want {
					if has[l.pathOf(name)] != text || has[l.pathOf(name)+push.TombstoneSuffix] != "" {
						t.Errorf("the current version of %q is not at the partner: %q", name, has)
					}
				}
			}
		})
	}
}

// pathOf is where an object of 2015 lies.
func (l *lab) pathOf(name string) string {
	if l.entry.Template == "{instrument}/{year}/{name}" {
		return "allsky-1/2015/" + name
	}
	return "allsky-1/" + name
}

// By the current template, an object has the path that another one had by the old template. A retraction of the other one leaves the first
// one's copy, and whatever lies there was brought by the current template.
func TestPathOfAnother(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ verify, other string }{{wire.MirrorVerifyDigest, "q two"}, {wire.MirrorVerifySize, "q two"}, {wire.MirrorVerifyDigest, "q one"}} {
		t.Run(c.verify+" "+c.other, func(t *testing.T) {
			byFolders(t, func(t *testing.T, l *lab, move func(string)) {
				l.entry.Verify = c.verify
				move("a")
				one := l.Put(archivetest.Camera, "2015/q.txt", "q one", named("2015/q.txt"), at(storm))
				l.Wait(one)
				l.Wait(l.Put(archivetest.Camera, "q.txt", c.other, named("q.txt"), at(storm)))
				l.push(2)
				l.entry.Template = "{instrument}/{year}/{name}"
				move("a")
				if err := l.run(); err != nil {
					t.Fatal(err)
				}
				want := map[string]string{"a/allsky-1/q.txt": c.other, "a/allsky-1/2015/q.txt": c.other, "a/allsky-1/2015/2015/q.txt": "q one"}
				l.want("by both templates", want)
				l.become(&one, wire.StateRetracted, "a lamp")
				if err := l.run(); err != nil {
					t.Fatal(err)
				}
				delete(want, "a/allsky-1/2015/2015/q.txt")
				l.want("what was retracted is gone", want)
			})
		})
	}
}
