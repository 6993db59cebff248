// SPDX-License-Identifier: Apache-2.0

package mirrorjobs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	mirrorjobs "github.com/substorm/substorm/mirror-jobs"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/bus"
)

const partner = "uni"

var storm = time.Date(2015, 3, 17, 12, 0, 0, 0, time.UTC)

// lab is a Site with a partner that is a bucket.
type lab struct {
	*archivetest.Lab
	there objectstore.Store
	cfg   mirrorjobs.Config
}

func newLab(t *testing.T, change ...func(*wire.MirrorEntry)) *lab {
	t.Helper()
	return newLabOn(t, testenv.NATS(t, testenv.NATSOptions{Unsynced: true}), change...)
}

func newLabOn(t *testing.T, server *testenv.NATSServer, change ...func(*wire.MirrorEntry)) *lab {
	t.Helper()
	l := &lab{Lab: archivetest.NewOn(t, server)}
	l.there = l.MinIO.Bucket(t, "partner")
	credentials := t.TempDir()
	for name, value := range map[string]string{wire.MirrorFileAccessKeyID: l.MinIO.AccessKeyID, wire.MirrorFileSecretAccessKey: l.MinIO.SecretAccessKey} {
		if err := os.WriteFile(filepath.Join(credentials, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	entry := wire.MirrorEntry{
		UID: "m", Generation: 1, Partner: partner, Direction: wire.MirrorPush, S3: &wire.MirrorS3{Endpoint: l.MinIO.URL(), Bucket: "partner", Region: "us-east-1"},
		Schedule: &wire.MirrorSchedule{Cron: "@hourly", TimeZone: "UTC", Concurrency: wire.MirrorForbid}, Limits: wire.MirrorLimits{Connections: 4, TimeZone: "UTC"},
		Selection: wire.MirrorSelection{Instruments: []string{archivetest.Camera}, Versions: wire.MirrorVersionsCurrent},
		Verify:    wire.MirrorVerifyDigest, Prune: wire.MirrorPruneNever, Retractions: wire.MirrorDelete, SafetyStopPercent: 10,
	}
	for _, c := range change {
		c(&entry)
	}
	l.NATS.Declare(t, archivetest.Site, testenv.Registry{Revision: 1, Mirrors: []wire.MirrorEntry{entry}, Instruments: []wire.InstrumentEntry{l.Snapshot().Instruments[archivetest.Camera]}})
	l.cfg = mirrorjobs.Config{
		Site: archivetest.Site, Partner: partner, Run: "uni-1", Pod: "uni-1-x", Trigger: wire.MirrorScheduled, ScratchDir: t.TempDir(), CredentialsDir: credentials,
		Objects: l.MinIO.Config(archivetest.Bucket), NATS: stream.Config{Servers: []string{l.NATS.URL()}}, LogLevel: "warn", Log: io.Discard,
	}
	l.Open()
	return l
}

// runs are the reports of all runs.
func (l *lab) runs() []wire.MirrorStatus {
	l.Helper()
	kv, err := l.JetStream.KeyValue(l.Context(), wire.StatusBucket(archivetest.Site))
	if err != nil {
		l.Fatal(err)
	}
	keys, err := kv.ListKeysFiltered(l.Context(), wire.MirrorStatusKey(partner, "*"))
	if err != nil {
		l.Fatal(err)
	}
	var runs []wire.MirrorStatus
	for key := range keys.Keys() {
		e, err := kv.Get(l.Context(), key)
		if err != nil {
			l.Fatal(err)
		}
		s, err := wire.Decode[wire.MirrorStatus](e.Value())
		if err != nil {
			l.Fatal(err)
		}
		runs = append(runs, s)
	}
	return runs
}

// reports are all reports of the run from now on, those too that another one replaces at once.
func (l *lab) reports() <-chan wire.MirrorStatus {
	l.Helper()
	reports := make(chan wire.MirrorStatus, 1000)
	subscription, err := l.JetStream.Conn().Subscribe("$KV."+wire.StatusBucket(archivetest.Site)+"."+wire.MirrorStatusKey(partner, l.cfg.Run), func(m *nats.Msg) {
		s, err := wire.Decode[wire.MirrorStatus](m.Data)
		if err != nil {
			l.Error(err)
		}
		reports <- s
	})
	if err == nil {
		err = l.JetStream.Conn().Flush()
	}
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = subscription.Unsubscribe() })
	return reports
}

// status is what the run reported last.
func (l *lab) status() wire.MirrorStatus {
	l.Helper()
	kv, err := l.JetStream.KeyValue(l.Context(), wire.StatusBucket(archivetest.Site))
	if err != nil {
		l.Fatal(err)
	}
	e, err := kv.Get(l.Context(), wire.MirrorStatusKey(partner, l.cfg.Run))
	if err != nil {
		return wire.MirrorStatus{}
	}
	s, err := wire.Decode[wire.MirrorStatus](e.Value())
	if err != nil {
		l.Fatal(err)
	}
	return s
}

func (l *lab) count() (n int) {
	for _, err := range l.there.List(l.Context(), "", "") {
		if err != nil {
			l.Fatal(err)
		}
		n++
	}
	return n
}

func at(received time.Time) func(*wire.Record) {
	return func(r *wire.Record) { r.ReceivedAt = received.UTC() }
}

func TestScheduled(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	l.Wait(l.Put(archivetest.Camera, "2.jpg", "two", at(storm)))
	if err := mirrorjobs.Run(t.Context(), l.cfg); err != nil {
		t.Fatal(err)
	}
	if s := l.status(); s.Result != wire.MirrorSucceeded || s.Progress.Objects != 2 || owed(s) != 0 || s.Reached.IsZero() || s.VerifiedTo.IsZero() || s.Generation != 1 || l.count() != 2 {
		t.Errorf("%d objects, %+v", l.count(), s)
	}
	// A manual run of a part, which only compares; and an object was removed.
	if err := l.there.Delete(t.Context(), "allsky-1/1.jpg"); err != nil {
		t.Fatal(err)
	}
	l.cfg.Run, l.cfg.Trigger, l.cfg.VerifyOnly, l.cfg.To = "by-hand", wire.MirrorManual, true, storm.Add(time.Hour)
	if err := mirrorjobs.Run(t.Context(), l.cfg); !errors.Is(err, push.ErrOwed) {
		t.Errorf("%v", err)
	}
	if s := l.status(); s.Result != wire.MirrorFailed || s.Reason != wire.MirrorReasonDigestMismatch || !s.Part || !s.VerifyOnly || l.count() != 1 || s.Progress.Objects != 0 || s.Progress.Compared != 1 || owed(s) != 1 || !s.Owed.Oldest.Equal(storm) {
		t.Errorf("%d objects, %+v", l.count(), s)
	}
	l.cfg.VerifyOnly, l.cfg.Force = false, true
	if err := mirrorjobs.Run(t.Context(), l.cfg); err != nil || l.count() != 2 {
		t.Errorf("with force: %d objects, %v", l.count(), err)
	}
	if s := l.status(); s.Result != wire.MirrorSucceeded || !s.VerifiedTo.IsZero() || owed(s) != 0 {
		t.Errorf("a run of a part proves nothing of the rest: %+v", s)
	}
}

// owed is what a run says is owed; -1: it does not know.
func owed(s wire.MirrorStatus) int64 {
	if s.Owed == nil {
		return -1
	}
	return s.Owed.Objects
}

// A run that waits for the one before says so, and reports nothing about the other side, which it did not ask.
func TestWaits(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(e *wire.MirrorEntry) { e.Verify = wire.MirrorVerifyNone })
	leases, err := l.JetStream.KeyValue(t.Context(), wire.LeaseBucket(archivetest.Site))
	if err != nil {
		t.Fatal(err)
	}
	lease, err := stream.AcquireLease(t.Context(), leases, wire.MirrorLease(partner, wire.MirrorManual), wire.Lease{Holder: "by-hand-1", Incarnation: "a"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l.cfg.Run, l.cfg.Trigger = "by-hand-2", wire.MirrorManual
	ended := make(chan error, 1)
	go func() { ended <- mirrorjobs.Run(t.Context(), l.cfg) }()
	l.Until("it says what it waits for", func() bool { return l.status().Message == `it waits until run "by-hand-1" has ended` })
	if s := l.status(); s.Result != wire.MirrorRunning || owed(s) != -1 {
		t.Errorf("%+v", s)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if s := l.status(); s.Result != wire.MirrorSucceeded || s.Message != "" || !s.Reached.IsZero() || !s.VerifiedTo.IsZero() || owed(s) != 0 {
		t.Errorf("it had nothing to ask: %+v", s)
	}
}

// A partner that answers a moment later gets everything by the same run.
func TestAsksAgain(t *testing.T) {
	t.Parallel()
	var way *testenv.Relay
	l := newLab(t, func(e *wire.MirrorEntry) {
		way = testenv.StartRelay(t, strings.TrimPrefix(e.S3.Endpoint, "http://"))
		way.Cut()
		e.S3.Endpoint = "http://" + way.Address()
	})
	l.Wait(l.Put(archivetest.Camera, "1.jpg", "one", at(storm)))
	reports := l.reports()
	ended := make(chan error, 1)
	go func() { ended <- mirrorjobs.Run(t.Context(), l.cfg) }()
	for {
		s := <-reports
		if s.Result != wire.MirrorRunning {
			t.Fatalf("it never said that it asks again: %+v", s)
		}
		if s.Reason == wire.MirrorReasonUnreachable && strings.HasPrefix(s.Message, "it retries after ") {
			break
		}
	}
	way.Mend()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if s := l.status(); s.Result != wire.MirrorSucceeded || s.Message != "" || s.Progress.Objects != 1 || s.Reached.IsZero() || s.Unreached != nil || owed(s) != 0 || l.count() != 1 {
		t.Errorf("%d objects, %+v", l.count(), s)
	}
	// One that does not come is given up.
	way.Cut()
	l.cfg.Run = "uni-2"
	l.Wait(l.Put(archivetest.Camera, "2.jpg", "two", at(storm)))
	if err := mirrorjobs.Run(t.Context(), l.cfg); err == nil {
		t.Error("the run succeeded without a partner")
	}
	if s := l.status(); s.Result != wire.MirrorFailed || s.Reason != wire.MirrorReasonUnreachable || s.Unreached == nil || s.Progress.Objects != 0 || l.count() != 1 {
		t.Errorf("%d objects, %+v", l.count(), s)
	}
}

// A continuous run brings what is announced, and ends when it is stopped.
func TestContinuous(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(e *wire.MirrorEntry) {
		e.Schedule, e.Continuous = nil, &wire.MirrorContinuous{IntervalMillis: time.Hour.Milliseconds()}
	})
	l.cfg.Run, l.cfg.Trigger = wire.MirrorRunContinuous, wire.MirrorContinuously
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mirrorjobs.Run(ctx, l.cfg) }()
	l.Wait(l.Put(archivetest.Camera, "1.jpg", "one", at(storm)))
	l.Until("it is brought", func() bool { return l.count() == 1 })
	l.Wait(l.Put(archivetest.Camera, "2.jpg", "two", at(storm.Add(time.Second))))
	l.Until("the next one too", func() bool { return l.count() == 2 && l.status().Result == wire.MirrorSucceeded })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A run needs no more than the rights that the operator gives it.
func TestRights(t *testing.T) {
	t.Parallel()
	l := newLabOn(t, testenv.NATS(t, testenv.NATSOptions{Operator: true, Unsynced: true}))
	site := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: archivetest.Site, Namespace: "north"}, Spec: v1alpha1.SiteSpec{Code: archivetest.Site}}
	user := bus.MirrorUser(site, &v1alpha1.MirrorPartner{ObjectMeta: metav1.ObjectMeta{Name: partner}})
	l.cfg.NATS.CredentialsFile = l.NATS.UserCreds(t, jwt.Permissions{Pub: jwt.Permission{Allow: user.Publish}, Sub: jwt.Permission{Allow: user.Subscribe}})
	l.cfg.NATS.InboxPrefix = user.InboxPrefix
	two := l.Put(archivetest.Camera, "2.jpg", "two", at(storm))
	l.Wait(l.Put(archivetest.Camera, "1.jpg", "one", at(storm)))
	if err := mirrorjobs.Run(t.Context(), l.cfg); err != nil {
		t.Fatal(err)
	}
	// The archivist asks partners for a purge, and hears that it is done.
	cursors, err := l.JetStream.KeyValue(t.Context(), wire.CursorBucket(archivetest.Site))
	if err != nil {
		t.Fatal(err)
	}
	asked := wire.Removal{Instrument: archivetest.Camera, Day: "2015-03-17", ID: two.ID, Reason: "a face", By: "a person", At: time.Now()}
	value, err := wire.Encode(asked)
	if err == nil {
		_, err = cursors.Put(t.Context(), asked.Key(), value)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.cfg.Run = "uni-2"
	if err := mirrorjobs.Run(t.Context(), l.cfg); err != nil || l.status().Purges != 1 {
		t.Errorf("a purge is asked that is not listed yet: %v, %+v", err, l.status())
	}
	two.State, two.Reason = wire.StatePurged, "a face"
	l.Announce(archivetest.Camera, two)
	l.Until("it is purged", func() bool {
		r, err := l.Catalog.Find(t.Context(), archivetest.Camera, "2.jpg")
		return err == nil && r.State == wire.StatePurged
	})
	l.cfg.Run, l.cfg.Force, l.cfg.Trigger = "by-hand", true, wire.MirrorManual
	if err := mirrorjobs.Run(t.Context(), l.cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := cursors.Get(t.Context(), wire.MirrorConfirmedKey(partner, asked)); err != nil || l.count() != 1 || l.status().Purges != 0 {
		t.Errorf("the purge is not confirmed: %v, %d objects", err, l.count())
	}
}

// If nothing starts Jobs, the program begins runs as the schedule says, including one that was missed.
func TestTimetable(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(e *wire.MirrorEntry) { e.Schedule.Cron = "* * * * *" })
	l.Wait(l.Put(archivetest.Camera, "1.jpg", "one", at(storm)))
	cursors, err := l.JetStream.KeyValue(t.Context(), wire.CursorBucket(archivetest.Site))
	if err != nil {
		t.Fatal(err)
	}
	last := fmt.Appendf(nil, `{"format":1,"at":%q}`, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
	if _, err := cursors.Put(t.Context(), wire.MirrorCursorKey(partner, "timetable"), last); err != nil {
		t.Fatal(err)
	}
	l.cfg.Run, l.cfg.Trigger = wire.MirrorRunContinuous, wire.MirrorTimetable
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mirrorjobs.Run(ctx, l.cfg) }()
	var first wire.MirrorStatus
	l.Until("the run that was missed", func() bool {
		runs := l.runs()
		if len(runs) > 0 {
			first = runs[0]
		}
		return first.Result == wire.MirrorSucceeded && l.count() == 1
	})
	if first.Trigger != wire.MirrorScheduled || !strings.HasPrefix(first.Run, partner+"-mirror-") {
		t.Errorf("%+v", first)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A run that is due while the one before lasts waits for its end, or replaces it.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{wire.MirrorForbid, wire.MirrorReplace} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			// Each run waits for the end of a window that never ends, but for a minute of the day.
			now := time.Now().UTC()
			l := newLab(t, func(e *wire.MirrorEntry) {
				e.Schedule.Cron, e.Schedule.Concurrency = "* * * * *", policy
				e.Limits.Maintenance = []wire.MirrorWindow{{From: now.Add(-2 * time.Hour).Format("15:04"), To: now.Add(-3 * time.Hour).Format("15:04")}}
			})
			l.Wait(l.Put(archivetest.Camera, "1.jpg", "one", at(storm)))
			cursors, err := l.JetStream.KeyValue(t.Context(), wire.CursorBucket(archivetest.Site))
			if err != nil {
				t.Fatal(err)
			}
			due := func(since time.Duration) {
				t.Helper()
				last := fmt.Appendf(nil, `{"format":1,"at":%q}`, time.Now().Add(-since).UTC().Format(time.RFC3339))
				if _, err := cursors.Put(t.Context(), wire.MirrorCursorKey(partner, "timetable"), last); err != nil {
					t.Fatal(err)
				}
			}
			l.cfg.Run, l.cfg.Trigger = wire.MirrorRunContinuous, wire.MirrorTimetable
			due(time.Hour)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- mirrorjobs.Run(ctx, l.cfg) }()
			waiting := func() (first wire.MirrorStatus, waits bool) {
				for _, s := range l.runs() {
					if s.Result == wire.MirrorRunning && s.Reason == wire.MirrorReasonMaintenance {
						return s, true
					}
				}
				return first, false
			}
			l.Until("a run lasts", func() bool { _, waits := waiting(); return waits })
			first, _ := waiting()
			if policy == wire.MirrorReplace {
				// The runs of one minute have one name: when the first one was begun says which it is.
				due(2 * time.Hour)
				l.Until("another one takes its place", func() bool {
					s, waits := waiting()
					return waits && s.StartedAt.After(first.StartedAt)
				})
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			for _, s := range l.runs() {
				if s.Result != wire.MirrorStopped || policy == wire.MirrorForbid && !s.StartedAt.Equal(first.StartedAt) {
					t.Errorf("%+v", s)
				}
			}
			if n := l.count(); n != 0 {
				t.Errorf("%d objects were brought", n)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(e *wire.MirrorEntry) { e.S3.Bucket = "none" })
	l.Wait(l.Put(archivetest.Camera, "1.jpg", "one", at(storm)))
	if err := mirrorjobs.Run(t.Context(), l.cfg); err == nil {
		t.Error("there is no such bucket")
	}
	if s := l.status(); s.Result != wire.MirrorFailed || owed(s) != 1 || s.Reason != wire.MirrorReasonProtocol || s.Reached.IsZero() || s.Unreached != nil {
		t.Errorf("it answers that there is no such bucket: %+v", s)
	}
	if err := os.WriteFile(filepath.Join(l.cfg.CredentialsDir, wire.MirrorFileSecretAccessKey), []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.cfg.Run = "uni-2"
	if err := mirrorjobs.Run(t.Context(), l.cfg); err == nil {
		t.Error("the key is wrong")
	}
	s := l.status()
	if s.Reason != wire.MirrorReasonAccessDenied || s.Unreached == nil {
		t.Errorf("%+v", s)
	}
	for _, part := range []string{l.MinIO.URL(), `"none"`, "Secret of spec.s3.credentialsSecretRef", "correct the key"} {
		if !strings.Contains(s.Message, part) {
			t.Errorf("%q does not say %q", s.Message, part)
		}
	}
	l.cfg.Partner = "nobody"
	if err := mirrorjobs.Run(t.Context(), l.cfg); err == nil || !strings.Contains(err.Error(), "has no MirrorPartner nobody") {
		t.Errorf("%v", err)
	}
	l.cfg.Trigger, l.cfg.Site = "now", ""
	if err := mirrorjobs.Run(t.Context(), l.cfg); err == nil || !strings.Contains(err.Error(), "--site") || !strings.Contains(err.Error(), "--trigger") {
		t.Errorf("%v", err)
	}
}
