// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/liar"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/rsync"
)

// toLyingDaemon has the partner be a server of rsync that lies.
func (l *lab) toLyingDaemon() *liar.Rsync {
	l.Helper()
	server := liar.NewRsync(l)
	l.has = func() map[string]string { return l.read(server.Dir) }
	var err error
	l.mover, err = rsync.New(rsync.Config{MirrorRsync: wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: server.Address, Module: "data"}}, Scratch: l.TempDir()})
	if err != nil {
		l.Fatal(err)
	}
	return server
}

// A file that a lying server of rsync took and does not have is not confirmed, and the reason is the partner's. Once it is honest it gets everything.
func TestLyingRsync(t *testing.T) {
	t.Parallel()
	reasons := map[liar.Mode]string{
		liar.KeepsNothing: wire.MirrorReasonDigestMismatch, liar.Truncates: wire.MirrorReasonDigestMismatch, liar.Alters: wire.MirrorReasonDigestMismatch,
		liar.Portal: wire.MirrorReasonProtocol, liar.Garbage: wire.MirrorReasonProtocol,
		liar.Cut: wire.MirrorReasonUnreachable, liar.Hangup: wire.MirrorReasonUnreachable,
	}
	l := newLab(t)
	server := l.toLyingDaemon()
	want := map[string]string{}
	for i, mode := range liar.RsyncModes {
		day := storm.AddDate(0, 0, i)
		for name, body := range map[string]string{"small-" + string(rune('a'+i)): string(mode), "large-" + string(rune('a'+i)): strings.Repeat(string(mode)+"\n", 20_000)} {
			want["allsky-1/"+name] = body
			l.Wait(l.Put(archivetest.Camera, name, body, at(day)))
		}
		server.Set(mode)
		var p *push.Problem
		if err := l.run(); !errors.As(err, &p) || p.Reason != reasons[mode] {
			t.Errorf("%s: reason %+v, want %s: %v", mode, p, reasons[mode], err)
		}
		if has := l.mirrored(wire.DayOf(day)); has.Objects != 0 {
			t.Errorf("%s: the partner is said to have confirmed %+v", mode, has)
		}
		server.Set("")
		if err := l.run(); err != nil {
			t.Errorf("after %s: %v", mode, err)
		}
		if has := l.mirrored(wire.DayOf(day)); has.Objects != 2 {
			t.Errorf("after %s: ledger: %+v", mode, has)
		}
		if mode == liar.KeepsNothing || mode == liar.Truncates || mode == liar.Alters { // earlier days are brought again
			l.force = true
			if err := l.run(); err != nil {
				t.Errorf("after %s, with force: %v", mode, err)
			}
			l.force = false
		}
		l.want("after "+string(mode), want)
	}
}

// A purge is not confirmed by a server that is none of rsync, does not keep to its protocol, or has the copy again.
func TestLyingRsyncPurge(t *testing.T) {
	t.Parallel()
	for _, mode := range []liar.Mode{liar.Portal, liar.Garbage, liar.Restores} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			server := l.toLyingDaemon()
			l.entry.SafetyStopPercent = 100
			all, want := l.days(1)
			l.push(2)
			asked := l.asks(&all[0])
			l.become(&all[0], wire.StatePurged, "a face")
			server.Set(mode)
			if err := l.run(); err == nil {
				t.Error("the run succeeded")
			}
			if l.confirmed(asked) {
				t.Error("a purge is confirmed, and the copy is there")
			}
			server.Set("")
			l.push(0)
			delete(want, "allsky-1/"+all[0].Path)
			if l.want("what was purged", want); !l.confirmed(asked) {
				t.Error("the purge is not confirmed")
			}
		})
	}
}
