// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/s3"
)

// A partner that refuses to remove gets everything nevertheless, and what it keeps is reported: it answers, and denies that.
func TestRemovalRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ option, says string }{{"delete", "configured to refuse --delete"}, {"delete-missing-args", "--delete-missing-args"}} {
		for _, retractions := range []string{wire.MirrorDelete, wire.MirrorTombstone} {
			t.Run(c.option+" "+retractions, func(t *testing.T) {
				t.Parallel()
				l := newLab(t)
				dir := l.toDaemon("refuse options = " + c.option + "\n")
				l.entry.SafetyStopPercent, l.entry.Retractions = 100, retractions
				all, want := l.days(2)
				l.push(4)
				l.become(&all[0], wire.StateRetracted, "a lamp")
				asked := l.asks(&all[1])
				l.become(&all[1], wire.StatePurged, "a face")
				l.Wait(l.Put(archivetest.Camera, "same.jpg", "same", at(storm.Add(time.Hour))))
				l.Wait(l.Put(archivetest.Camera, "later.jpg", "later", at(storm.AddDate(0, 0, 2))))
				want["allsky-1/same.jpg"], want["allsky-1/later.jpg"] = "same", "later"
				for range 2 {
					var p *push.Problem
					err := l.run()
					if !errors.As(err, &p) || p.Reason != wire.MirrorReasonAccessDenied || !p.Answered || !errors.Is(err, push.ErrKept) || errors.Is(err, push.ErrOwed) {
						t.Errorf("%v", err)
					}
					if err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "vanished")) {
						t.Errorf("%q does not say %q", err, c.says)
					}
					if r := l.last.Report(); r.Failed != 2 || l.last.Owed().Objects != 0 || l.last.Unconfirmed() != 1 {
						t.Errorf("%+v, %+v, %d unconfirmed", r, l.last.Owed(), l.last.Unconfirmed())
					}
					l.want("all that is current, and what it keeps", want)
					if l.confirmed(asked) {
						t.Error("a purge is confirmed, and the copy is there")
					}
				}
				if has := l.mirrored("2015-03-19"); has.Objects != 1 {
					t.Errorf("ledger: %+v", has)
				}
				l.toDaemon("path = " + dir + "\n")
				l.has = func() map[string]string { return l.read(dir) }
				l.push(0)
				if len(l.has()) < 4 || l.has()["allsky-1/00.jpg"] != "" || l.has()["allsky-1/01.jpg"] != "" || !l.confirmed(asked) {
					t.Errorf("once it lets copies be removed it has %v", l.has())
				}
			})
		}
	}
}

// A bucket whose user may write and not delete gets everything, too.
func TestDeleteDenied(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.MinIO.Bucket(t, "partner")
	cfg := l.MinIO.Config("partner")
	user := l.MinIO.GatewayUser(t, "partner") // it may delete nothing below o/
	cfg.AccessKeyID, cfg.SecretAccessKey = user.AccessKeyID, user.SecretAccessKey
	store, err := objectstore.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.mover = s3.New(s3.Config{Store: store, Prefix: "o/mirror", Connections: 2})
	all, _ := l.days(2)
	l.push(4)
	l.become(&all[0], wire.StateRetracted, "a lamp")
	l.Wait(l.Put(archivetest.Camera, "later.jpg", "later", at(storm.AddDate(0, 0, 2))))
	var p *push.Problem
	if err := l.run(); !errors.As(err, &p) || p.Reason != wire.MirrorReasonAccessDenied || !p.Answered || !errors.Is(err, push.ErrKept) {
		t.Errorf("%v", err)
	}
	for path, is := range map[string]int64{"later.jpg": 5, "00.jpg": 8} {
		if info, err := l.MinIO.Bucket(t, "partner").Head(t.Context(), "o/mirror/allsky-1/"+path); err != nil || info.Size != is {
			t.Errorf("%s: %v, %d bytes", path, err, info.Size)
		}
	}
}

// A partner that refuses to remove has never had what must go: nothing is counted, and the run ends well.
func TestRefusedAndNeverThere(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.toDaemon("refuse options = delete\n")
	l.entry.Retractions = wire.MirrorTombstone
	all, want := l.days(2)
	for i := range 3 {
		l.become(&all[i], wire.StatePurged, "a face")
		l.asks(&all[i])
		delete(want, "allsky-1/"+all[i].Path)
	}
	for range 2 {
		if err := l.run(); err != nil || l.last.Report().Failed != 0 || l.last.Unconfirmed() != 0 {
			t.Errorf("%v, %+v, %d unconfirmed", err, l.last.Report(), l.last.Unconfirmed())
		}
	}
	l.want("all that is current", want)
}
