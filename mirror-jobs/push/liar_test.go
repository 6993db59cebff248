// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"errors"
	"testing"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/liar"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/s3"
)

// toLiar has the partner be a bucket behind a proxy that lies.
func (l *lab) toLiar() *liar.Proxy {
	l.Helper()
	l.toBucket()
	proxy := liar.Before(l, l.MinIO.URL())
	cfg := l.MinIO.Config("partner")
	cfg.Endpoint = proxy.URL
	store, err := objectstore.Open(cfg)
	if err != nil {
		l.Fatal(err)
	}
	l.mover = s3.New(s3.Config{Store: store, Endpoint: proxy.URL, Bucket: "partner", Prefix: "mirror/thule", Connections: 4})
	return proxy
}

// A copy that a lying bucket acknowledges and does not have is not confirmed, and the reason is the partner's. Once the bucket is honest
// it gets everything.
func TestLyingBucket(t *testing.T) {
	t.Parallel()
	reasons := map[liar.Mode]string{
		liar.Forgets: wire.MirrorReasonDigestMismatch, liar.OtherBytes: wire.MirrorReasonDigestMismatch,
		liar.Fails: wire.MirrorReasonUnreachable, liar.FailsAfter: wire.MirrorReasonUnreachable, liar.Cut: wire.MirrorReasonUnreachable,
	}
	for _, mode := range liar.BucketModes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			proxy := l.toLiar()
			_, want := l.days(1)
			proxy.Set(mode)
			reason := reasons[mode]
			if reason == "" {
				reason = wire.MirrorReasonProtocol
			}
			var p *push.Problem
			if err := l.run(); !errors.As(err, &p) || p.Reason != reason {
				t.Errorf("reason %+v, want %s: %v", p, reason, err)
			}
			for _, day := range []wire.Day{"2015-03-17", "2015-03-18"} {
				if has := l.mirrored(day); has.Objects != 0 {
					t.Errorf("the partner is said to have confirmed %+v of %s", has, day)
				}
			}
			proxy.Set("")
			if err := l.run(); err != nil {
				t.Error(err)
			}
			l.want("once it is honest", want)
			if has := l.mirrored("2015-03-17"); has.Objects != 1 {
				t.Errorf("ledger: %+v", has)
			}
		})
	}
}

// Without verification an acknowledgement counts. A page, or an answer without an ETag, is none.
func TestLyingBucketUnverified(t *testing.T) {
	t.Parallel()
	for _, mode := range []liar.Mode{liar.Portal, liar.BarePortal, liar.NoETag, liar.Redirect, liar.Fails} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			proxy := l.toLiar()
			l.entry.Verify = wire.MirrorVerifyNone
			_, want := l.days(1)
			proxy.Set(mode)
			if err := l.run(); err == nil {
				t.Error("the run succeeded")
			}
			if has := l.mirrored("2015-03-17"); has.Objects != 0 {
				t.Errorf("ledger: %+v", has)
			}
			proxy.Set("")
			if err := l.run(); err != nil {
				t.Error(err)
			}
			l.want("once it is honest", want)
		})
	}
}

// A purge that is answered with a page is not confirmed.
func TestLyingBucketPurge(t *testing.T) {
	t.Parallel()
	for _, mode := range []liar.Mode{liar.Portal, liar.BarePortal, liar.KeepsAll} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			proxy := l.toLiar()
			l.entry.SafetyStopPercent = 100
			all, want := l.days(1)
			l.push(2)
			asked := l.asks(&all[0])
			l.become(&all[0], wire.StatePurged, "a face")
			proxy.Set(mode)
			if err := l.run(); err == nil {
				t.Error("the run succeeded")
			}
			if l.confirmed(asked) {
				t.Error("a purge is confirmed, and the copy is there")
			}
			proxy.Set("")
			l.push(0)
			delete(want, "allsky-1/"+all[0].Path)
			if l.want("what was purged", want); !l.confirmed(asked) {
				t.Error("the purge is not confirmed")
			}
		})
	}
}
