// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/ingest-gateway/names"
	"github.com/substorm/substorm/internal/nameclaims"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// Bytes under the name of an object that was purged that are not its own have a receipt of their
// own: no sweep has them removed.
func TestSweepKeepsOtherBytes(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now().UTC()
	cfg := l.keeper("a")
	stop := l.run(cfg)
	n := l.named(camera, now, "big/x", "one")
	l.await("it is listed", func() bool { return l.is(n.ID, wire.StateCurrent) })
	l.ask(n, wire.StatePurged, "private")
	l.await("it is gone", func() bool { return l.is(n.ID, wire.StatePurged) && !l.there(n.Key) && len(l.removals()) == 0 })
	stop()

	other := l.notice(camera, object{now, "other"})
	other.Name, other.Key, other.ID = n.Name, n.Key, n.ID
	l.putNamed(other, "other")
	cfg = l.keeper("b")
	metrics := prometheus.NewRegistry()
	cfg.Metrics = metrics
	if err := l.kv(wire.CursorBucket(l.site)).Delete(t.Context(), wire.SweepCursorKey); err != nil { // it looks at the whole bucket
		t.Fatal(err)
	}
	l.run(cfg)
	l.await("the sweep found it", func() bool { return counted(t, metrics, "substorm_sweep_found_total", "Other") > 0 })
	want(t, "handed on to be removed", 0, max(0, counted(t, metrics, "substorm_sweep_found_total", "Purged")))
	if !l.there(n.Key) {
		t.Error("bytes that have a receipt are gone")
	}
}

func (l *lab) kv(bucket string) jetstream.KeyValue {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), bucket)
	if err != nil {
		l.t.Fatal(err)
	}
	return kv
}

// loseNames deletes the bucket of names and recreates it, as a user who restores JetStream does.
func (l *lab) loseNames() {
	l.t.Helper()
	bucket := wire.NamesBucket(l.site)
	if err := l.js.DeleteKeyValue(l.t.Context(), bucket); err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.js.CreateKeyValue(l.t.Context(), jetstream.KeyValueConfig{Bucket: bucket, Storage: jetstream.FileStorage, History: 1}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) namesAreWhole() bool {
	l.t.Helper()
	whole, err := nameclaims.IsWhole(l.t.Context(), l.kv(wire.NamesBucket(l.site)))
	if err != nil {
		l.t.Fatal(err)
	}
	return whole
}

// upload stores and announces an object as a gateway does that keeps versions.
func (l *lab) upload(gateway *names.Names, instrument string, at time.Time, name, body string) wire.Notice {
	l.t.Helper()
	n := l.notice(instrument, object{at, body})
	held, err := gateway.Claim(l.t.Context(), wantedBy(n, name, true))
	if err != nil {
		l.t.Fatal(err)
	}
	n.Name, n.Key, n.ID, n.Supersedes = name, held.Key, held.Key, held.Supersedes
	if held.Version > 1 {
		n.Version = held.Version
	}
	l.putNamed(n, body)
	l.announce(n)
	return n
}

func wantedBy(n wire.Notice, name string, keepVersions bool) names.Wanted {
	return names.Wanted{Instrument: n.Instrument, Name: name, Digest: n.Digest, Size: n.Size, ReceivedAt: n.ReceivedAt,
		Gateway: n.Gateway, Incarnation: n.Incarnation, KeepVersions: keepVersions}
}

func (l *lab) gateway() *names.Names {
	return names.New(names.Config{Site: l.site, JetStream: l.js, Logger: slog.New(slog.DiscardHandler)})
}

// Names that were lost are rebuilt from what the archive lists, and no object takes one before:
// also those of objects that were purged, and of objects that are in no manifest yet.
func TestNamesMadeAnew(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now().UTC()
	at := func(i int) time.Time { return now.Add(time.Duration(i-100) * time.Hour) }
	gateway := l.gateway()
	stop := l.run(l.keeper("a"))
	l.await("a Site without data has its names at once", l.namesAreWhole)
	var versions []wire.Notice
	for i := range 5 {
		versions = append(versions, l.upload(gateway, camera, at(12*i), "v.txt", fmt.Sprint("version ", i+1)))
	}
	gone := l.upload(gateway, mag, at(0), "big/x", "private")
	l.send(camera, at(1), "nameless")
	l.await("all is listed", func() bool { return len(l.listed(camera)) == 6 && l.is(gone.ID, wire.StateCurrent) })
	l.ask(gone, wire.StatePurged, "private")
	l.await("it is gone", func() bool { return l.is(gone.ID, wire.StatePurged) && !l.there(gone.Key) })
	before := l.claims(camera, "v.txt", mag, "big/x", mag, "big")
	stop()

	late := l.upload(gateway, camera, at(90), "late", "in no manifest yet")
	l.loseNames()
	for _, n := range []wire.Notice{versions[0], gone, late} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := gateway.Claim(ctx, wantedBy(l.notice(n.Instrument, object{now, "other"}), n.Name, true))
		cancel()
		if !errors.Is(err, stream.ErrUnavailable) {
			t.Errorf("%s is taken while nobody knows whether it is free: %v", n.Name, err)
		}
	}
	l.run(l.keeper("b"))
	l.await("the names are whole", l.namesAreWhole)
	after := l.claims(camera, "v.txt", mag, "big/x", mag, "big")
	want(t, "claims", marked(before), marked(after))
	for _, n := range []wire.Notice{gone, late} {
		if _, err := gateway.Claim(t.Context(), wantedBy(l.notice(n.Instrument, object{now, "other"}), n.Name, false)); !errors.Is(err, names.ErrConflict) {
			t.Errorf("other bytes get the name %s: %v", n.Name, err)
		}
	}
	if _, err := l.gateway().Claim(t.Context(), wantedBy(l.notice(mag, object{now, "other"}), "big", true)); !errors.As(err, new(*nameclaims.FolderError)) {
		t.Errorf("an object gets the name of a folder: %v", err)
	}
	held, err := gateway.Claim(t.Context(), wantedBy(l.notice(camera, object{now, "version 6"}), "v.txt", true))
	if err != nil || held.Version != 6 || held.Supersedes != versions[4].ID {
		t.Errorf("the next version: %+v, %v", held, err)
	}
}

// If the names are lost while an archivist works, no older version is shown as the current one beside the newest.
func TestRestoreWithoutNames(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now().UTC()
	gateway := l.gateway()
	cfg := l.keeper("a")
	metrics := prometheus.NewRegistry()
	cfg.Metrics = metrics
	l.run(cfg)
	old := l.upload(gateway, camera, now, "v.txt", "one")
	newest := l.upload(gateway, camera, now.Add(time.Second), "v.txt", "two")
	l.await("both are listed", func() bool { return l.is(old.ID, wire.StateSuperseded) && l.is(newest.ID, wire.StateCurrent) })
	l.ask(old, wire.StateRetracted, "dark")
	l.await("it is retracted", func() bool { return l.is(old.ID, wire.StateRetracted) })
	l.loseNames()
	for asked := range 20 {
		l.ask(old, wire.StateCurrent, "it was the night")
		l.await("the archivist answers", func() bool {
			return !l.is(old.ID, wire.StateRetracted) || counted(t, metrics, "substorm_archive_changes_refused_total", "Names") > float64(asked)
		})
		if !l.is(old.ID, wire.StateRetracted) {
			break
		}
		l.await("the names are whole", l.namesAreWhole)
	}
	want(t, "states", []wire.State{wire.StateSuperseded, wire.StateCurrent}, []wire.State{l.record(old.ID).State, l.record(newest.ID).State})
}

// claims returns those of instruments and names, in turn.
func (l *lab) claims(of ...string) []wire.NameClaim {
	l.t.Helper()
	var claims []wire.NameClaim
	for i := 0; i < len(of); i += 2 {
		c, _, err := l.gateway().Lookup(l.t.Context(), of[i], of[i+1])
		if err != nil {
			l.t.Fatal(err)
		}
		claims = append(claims, c)
	}
	return claims
}

// marked are claims whose versions are all announced: gateways mark that later.
func marked(claims []wire.NameClaim) []wire.NameClaim {
	for _, c := range claims {
		for i := range c.Versions {
			c.Versions[i].Announced = true
		}
	}
	return claims
}
