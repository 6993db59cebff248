// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/natsaccounts"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/bus"
)

// lasting are the buckets whose keys stay until they are removed.
func lasting() (names []string) {
	for _, b := range bus.Buckets(site()) {
		if b.TTL == 0 {
			names = append(names, b.Name)
		}
	}
	return names
}

// rollups are messages to keys and subjects that the credential may write. Each of them removes all else in its stream if that allows
// rollups.
func rollups(a attackerConn) (all []*nats.Msg) {
	for _, subject := range a.publishes {
		for _, mode := range []string{jetstream.MsgRollupSubject, jetstream.MsgRollupAll} {
			m := nats.NewMsg(strings.NewReplacer("*", "own", ">", "own").Replace(subject))
			if strings.HasPrefix(m.Subject, "$JS.") {
				continue
			}
			m.Header.Set(jetstream.MsgRollup, mode)
			all = append(all, m)
		}
	}
	return all
}

// rolledUp are the streams that lost what fill stored.
func (l *lab) rolledUp() (lost []string) {
	l.t.Helper()
	for _, name := range lasting() {
		kv, err := l.js.KeyValue(l.t.Context(), name)
		if err != nil {
			l.t.Fatal(err)
		}
		switch _, err := kv.Get(l.t.Context(), "delete"); {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			lost = append(lost, name)
		case err != nil:
			l.t.Fatal(err)
		}
	}
	for _, name := range []string{obs, notices} {
		if l.stream(name).State.FirstSeq > 1 {
			lost = append(lost, name)
		}
	}
	return lost
}

// TestRollups: a user that may write one key of a bucket cannot remove all others, because the buckets accept no rollups.
func TestRollups(t *testing.T) {
	t.Parallel()
	for _, c := range credentials() {
		if c.account != natsaccounts.Substorm || !slices.ContainsFunc(c.user.Publish, func(s string) bool { return strings.HasPrefix(s, "$KV.") }) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, testenv.NATS(t, testenv.NATSOptions{Operator: true, Unsynced: true}), 1)
			for _, name := range append(slices.Clone(streams), "KV_"+wire.NamesBucket(code), "KV_"+wire.IndexBucket(code)) {
				cfg := l.stream(name).Config
				cfg.AllowRollup = true
				if _, err := l.js.UpdateStream(t.Context(), cfg); err != nil {
					t.Fatal(err)
				}
			}
			l.fill()
			for _, r := range requests {
				if r.messages == nil {
					continue
				}
				if by := l.attack(c.connect(l), r); by == "" {
					t.Error("the attack does not work where rollups are allowed, so the table shows nothing")
				}
				t.Logf("%s: lost %v", c.name, l.rolledUp())
			}
		})
	}
}

// TestMirrorsReadTheirOwnKeys: a run reads how far its own partner came, and no other's, nor other programs'; one that pulls by rsync
// reads neither notices nor the index.
func TestMirrorsReadTheirOwnKeys(t *testing.T) {
	t.Parallel()
	l := newLab(t, testenv.NATS(t, testenv.NATSOptions{Operator: true, Unsynced: true}), 1)
	l.fill()
	cursors, leases := wire.CursorBucket(code), wire.LeaseBucket(code)
	own := map[string]string{cursors: wire.MirrorCursorKey("uni", "root"), leases: wire.MirrorLease("uni", wire.MirrorScheduled)}
	removal, confirmed := "removal.cam.2026-11-26.x", "confirmed.uni.cam.2026-11-26.x"
	others := map[string][]string{
		cursors: {wire.MirrorCursorKey("other", "root"), wire.PositionCursorKey(attacker), "confirmed.other.cam.2026-11-26.x"},
		leases:  {wire.MirrorLease("other", wire.MirrorScheduled), "archivist"},
	}
	for bucket, key := range own {
		for _, k := range append(others[bucket], key) {
			l.publish("$KV."+bucket+"."+k, "{}")
		}
	}
	l.publish("$KV."+cursors+"."+removal, "{}")
	l.publish("$KV."+cursors+"."+confirmed, "{}")
	push := v1alpha1.MirrorPartnerSpec{Direction: v1alpha1.MirrorPush}
	pull := v1alpha1.MirrorPartnerSpec{Direction: v1alpha1.MirrorPull, HTTPS: &v1alpha1.MirrorHTTPS{Origin: "arctic"}}
	tree := v1alpha1.MirrorPartnerSpec{Direction: v1alpha1.MirrorPull}
	for name, spec := range map[string]v1alpha1.MirrorPartnerSpec{"push": push, "pull": pull, "pull by rsync": tree} {
		m := &v1alpha1.MirrorPartner{Spec: spec}
		m.Name = "uni"
		user := bus.MirrorUser(site(), m)
		denied := make(chan error, 1)
		nc := l.connect(l.bus.UserCreds(t, permissions(user)), nats.CustomInboxPrefix(user.InboxPrefix),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
		gets := func(request, payload string) bool {
			t.Helper()
			inbox, answers := nc.NewInbox(), make(chan *nats.Msg, 1)
			sub, err := nc.ChanSubscribe(inbox, answers)
			if err == nil {
				err = nc.PublishRequest(request, inbox, []byte(payload))
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = sub.Unsubscribe() }()
			select {
			case <-answers:
				return true
			case err := <-denied:
				if !errors.Is(err, nats.ErrPermissionViolation) {
					t.Fatal(err)
				}
				return false
			}
		}
		key := func(bucket, key string) bool { return gets("$JS.API.DIRECT.GET.KV_"+bucket+".$KV."+bucket+"."+key, "") }
		for bucket, is := range own {
			if !key(bucket, is) {
				t.Errorf("%s: its own key %s cannot be read", name, is)
			}
			for _, k := range others[bucket] {
				if key(bucket, k) {
					t.Errorf("%s: key %s of others can be read", name, k)
				}
			}
		}
		if reads := key(cursors, removal) && key(cursors, confirmed); reads != (name == "push") {
			t.Errorf("%s: what partners are asked to remove can be read: %t", name, reads)
		}
		if reads := gets("$JS.API.STREAM.MSG.GET.KV_"+leases, `{"last_by_subj":"$KV.`+leases+`.archivist"}`); reads {
			t.Errorf("%s: the leader tells others' leases", name)
		}
		for _, s := range []string{notices, "KV_" + wire.IndexBucket(code)} {
			if reads := gets("$JS.API.DIRECT.GET."+s+"."+subjectOf(s, true), ""); reads != (name != "pull by rsync") {
				t.Errorf("%s: %s can be read: %t", name, s, reads)
			}
		}
	}
}
