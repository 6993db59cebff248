// SPDX-License-Identifier: Apache-2.0

package guests

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const site = "hub"

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// lease is held until it is lost.
type lease struct{ lost bool }

func (l *lease) Check() error {
	if l.lost {
		return stream.ErrLeaseLost
	}
	return nil
}

type lab struct {
	t     *testing.T
	js    jetstream.JetStream
	store objectstore.Store
	lease lease
	log   bytes.Buffer
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, js: testenv.NATS(t, testenv.NATSOptions{}).JetStream(t), store: testenv.SharedBucket(t)}
	testenv.CreateSite(t, l.js, site)
	return l
}

// keeper is one incarnation of it.
func (l *lab) keeper() *Keeper {
	return New(Config{
		Base:    holder.Base{Site: site, JetStream: l.js, Store: l.store, Lease: &l.lease, Log: slog.New(slog.NewTextHandler(io.MultiWriter(l.t.Output(), &l.log), nil))},
		Metrics: NewMetrics(prometheus.NewRegistry()),
	})
}

func (l *lab) pass(k *Keeper, now time.Time) {
	l.t.Helper()
	if err := k.pass(l.t.Context(), now); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) registry() jetstream.KeyValue {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.RegistryBucket(site))
	if err != nil {
		l.t.Fatal(err)
	}
	return kv
}

// guest is an entry as a run of a mirror writes it: of an instrument that everybody may read in this way.
func guest(instrument, access string, saidAt time.Time) wire.GuestEntry {
	return wire.GuestEntry{Origin: "arctic", Instrument: instrument, Partner: "north", SaidAt: saidAt, MediaType: "image/png",
		Access: &wire.AccessEntry{Live: access, Archive: access}}
}

// declare writes an entry as a run does.
func (l *lab) declare(e wire.GuestEntry) {
	l.t.Helper()
	data, err := wire.Encode(e)
	if err == nil {
		_, err = l.registry().Put(l.t.Context(), wire.RegistryGuestKey(e.Origin, e.Instrument), data)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// lose deletes the registry and makes it again, as the operator does.
func (l *lab) lose() {
	l.t.Helper()
	if err := l.js.DeleteKeyValue(l.t.Context(), wire.RegistryBucket(site)); err != nil {
		l.t.Fatal(err)
	}
	testenv.CreateSite(l.t, l.js, site)
}

// entries are the entries of guests in the registry, by key.
func (l *lab) entries() map[string]string {
	l.t.Helper()
	all := map[string]string{}
	err := stream.Entries(l.t.Context(), l.js, l.registry(), everyGuest, func(e jetstream.KeyValueEntry) error {
		all[e.Key()] = string(e.Value())
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return all
}

// access says which readers may read the archive of each guest, by the registry.
func (l *lab) access() map[string]string {
	l.t.Helper()
	all := map[string]string{}
	for key, data := range l.entries() {
		e, err := wire.Decode[wire.GuestEntry]([]byte(data))
		if err != nil || wire.RegistryGuestKey(e.Origin, e.Instrument) != key {
			l.t.Fatalf("%s: %v, %+v", key, err, e)
		}
		all[e.Instrument] = e.Access.Archive
	}
	return all
}

// copies are the keys in the bucket.
func (l *lab) copies() (keys []string) {
	l.t.Helper()
	for info, err := range l.store.List(l.t.Context(), wire.GuestCopySitePrefix(site), "") {
		if err != nil {
			l.t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

func (l *lab) want(what string, want, got any) {
	l.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		l.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestRegistryLost: a registry that was lost gets the newest entry of each guest again, byte for byte, from the keeper that
// copied them and from the next one. A guest that was closed stays closed.
func TestRegistryLost(t *testing.T) {
	l := newLab(t)
	l.declare(guest("cam", wire.AccessPublic, noon))
	l.declare(guest("mag", wire.AccessPublic, noon))
	first := l.keeper()
	l.pass(first, noon)
	l.declare(guest("mag", wire.AccessRestricted, noon.Add(-time.Hour))) // by an origin's clock that went back
	l.pass(first, noon.Add(-time.Minute))                                // and ours did, too
	l.pass(first, noon)
	l.want("copies", 3, len(l.copies()))
	want := l.entries()
	for name, k := range map[string]*Keeper{"the same keeper": first, "another": l.keeper()} {
		l.lose()
		l.log.Reset()
		l.pass(k, noon.Add(time.Hour))
		l.want("entries of "+name, want, l.entries())
		l.want("access", map[string]string{"cam": wire.AccessPublic, "mag": wire.AccessRestricted}, l.access())
		l.pass(k, noon.Add(2*time.Hour))
		l.want("restored by "+name, 2.0, testutil.ToFloat64(k.cfg.Metrics.restored))
		if text := l.log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "restored=2") {
			t.Errorf("%s logs: %s", name, text)
		}
	}
	l.want("copies after all", 3, len(l.copies()))
}

// TestEntryLost: one entry that is gone comes back, also where no entry was written since.
func TestEntryLost(t *testing.T) {
	l := newLab(t)
	l.declare(guest("cam", wire.AccessPublic, noon))
	l.declare(guest("mag", wire.AccessPublic, noon))
	k := l.keeper()
	l.pass(k, noon)
	want := l.entries()
	if err := l.registry().Delete(t.Context(), wire.RegistryGuestKey("arctic", "mag")); err != nil {
		t.Fatal(err)
	}
	l.pass(k, noon)
	l.want("a deleted entry", want, l.entries())
	s, err := l.js.Stream(t.Context(), "KV_"+wire.RegistryBucket(site))
	if err == nil {
		err = s.Purge(t.Context(), jetstream.WithPurgeSubject("$KV."+wire.RegistryBucket(site)+"."+wire.RegistryGuestKey("arctic", "cam")))
	}
	if err != nil {
		t.Fatal(err)
	}
	l.pass(k, noon.Add(fullInterval))
	l.want("a purged entry", want, l.entries())
}

// overtaken is a store from which a copy is read while a run writes something newer.
type overtaken struct {
	objectstore.Store
	run func()
}

func (o *overtaken) Get(ctx context.Context, key string, r objectstore.Range) (io.ReadCloser, objectstore.Info, error) {
	o.run()
	return o.Store.Get(ctx, key, r)
}

// TestRunIsNewer: what a run says while the registry is restored stays, and is copied.
func TestRunIsNewer(t *testing.T) {
	l := newLab(t)
	l.declare(guest("cam", wire.AccessPublic, noon))
	k := l.keeper()
	l.pass(k, noon)
	l.lose()
	k.cfg.Store = &overtaken{l.store, func() { l.declare(guest("cam", wire.AccessRestricted, noon.Add(time.Hour))) }}
	l.pass(k, noon.Add(time.Hour))
	l.want("access", map[string]string{"cam": wire.AccessRestricted}, l.access())
	l.want("restored", 0.0, testutil.ToFloat64(k.cfg.Metrics.restored))
	k.cfg.Store = l.store
	l.pass(k, noon.Add(time.Hour))
	l.want("copies", 2, len(l.copies()))
	l.lose()
	l.pass(l.keeper(), noon.Add(2*time.Hour))
	l.want("access after another loss", map[string]string{"cam": wire.AccessRestricted}, l.access())
}

// full is a store that takes no objects, or whose answer is lost.
type full struct {
	objectstore.Store
	takes bool
}

func (f *full) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objectstore.PutOptions) error {
	if f.takes {
		if err := f.Store.Put(ctx, key, body, size, opts); err != nil {
			return err
		}
	}
	return objectstore.ErrUnavailable
}

// TestFailures: the registry is restored while nothing can be copied, a copy whose answer was lost is not made twice, and
// nothing is written without the lease.
func TestFailures(t *testing.T) {
	l := newLab(t)
	l.declare(guest("cam", wire.AccessPublic, noon))
	k := l.keeper()
	l.pass(k, noon)
	l.lose()
	l.declare(guest("mag", wire.AccessPublic, noon))
	store := &full{Store: l.store}
	k.cfg.Store = store
	for _, takes := range []bool{false, true} {
		store.takes = takes
		if err := k.pass(t.Context(), noon); !errors.Is(err, objectstore.ErrUnavailable) {
			t.Errorf("a store that takes objects %t: %v", takes, err)
		}
	}
	l.want("access", map[string]string{"cam": wire.AccessPublic, "mag": wire.AccessPublic}, l.access())
	l.want("failures", 2.0, testutil.ToFloat64(k.cfg.Metrics.failures))
	k.cfg.Store = l.store
	l.pass(k, noon.Add(time.Hour))
	l.want("copies", 2, len(l.copies()))

	l.lose()
	l.declare(guest("mag", wire.AccessRestricted, noon))
	l.lease.lost = true
	if err := l.keeper().Run(t.Context()); !errors.Is(err, stream.ErrLeaseLost) {
		t.Errorf("without the lease: %v", err)
	}
	l.want("copies without the lease", 2, len(l.copies()))
	l.want("access without the lease", map[string]string{"mag": wire.AccessRestricted}, l.access())
}

// TestUnread: entries and copies that cannot be read are neither copied nor restored nor replaced, and are counted.
func TestUnread(t *testing.T) {
	l := newLab(t)
	l.declare(guest("cam", wire.AccessPublic, noon))
	l.declare(guest("mag", wire.AccessPublic, noon))
	l.pass(l.keeper(), noon)
	l.lose()
	later := noon.Add(time.Hour)
	tampered, err := wire.Encode(guest("cam", wire.AccessAuthenticated, noon))
	if err != nil {
		t.Fatal(err)
	}
	for key, text := range map[string]string{
		wire.GuestCopySitePrefix(site) + "README":                         "hello",
		wire.GuestCopyKey(site, "arctic_cam", later, wire.Digest{1}):      string(tampered),
		wire.GuestCopyKey(site, "arctic_large", later, wire.Digest{1, 2}): strings.Repeat("x", maxSize+1),
	} {
		if err := l.store.Put(t.Context(), key, strings.NewReader(text), int64(len(text)), objectstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const newer = `{"format":9,"is":"newer"}`
	if _, err := l.registry().Put(t.Context(), wire.RegistryGuestKey("arctic", "mag"), []byte(newer)); err != nil {
		t.Fatal(err)
	}
	k := l.keeper()
	l.pass(k, later)
	l.want("entries", map[string]string{wire.RegistryGuestKey("arctic", "mag"): newer}, l.entries())
	l.want("copies", 5, len(l.copies()))
	l.want("failures", 4.0, testutil.ToFloat64(k.cfg.Metrics.failures))
}
