// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// pollInterval is how often something that others must do is looked for.
	pollInterval = 200 * time.Millisecond
	// noteAfter is how long a wait lasts before it is reported.
	noteAfter = 2 * time.Second
	// endTimeout bounds what is left to do when an import ends.
	endTimeout = 15 * time.Second
)

func newRun() string {
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

// instrumentOf reads what gateways know of the instrument: to import for an undeclared one would be a typing error.
func instrumentOf(ctx context.Context, js jetstream.JetStream, site, instrument string) (wire.InstrumentEntry, error) {
	registry, err := js.KeyValue(ctx, wire.RegistryBucket(site))
	if err != nil {
		return wire.InstrumentEntry{}, fmt.Errorf("registry of Site %s: %w: is the Site ready? See substorm status", site, err)
	}
	entry, revision, err := stream.Record[wire.InstrumentEntry](ctx, registry, wire.RegistryInstrumentKey(instrument))
	if err == nil && revision == 0 {
		err = fmt.Errorf("Site %s has no Instrument %q: apply it first, with state: Retired where it no longer sends", site, instrument)
	}
	return entry, err
}

// acquire waits until no other import runs for the instrument.
func (im *importer) acquire(ctx context.Context) (*stream.Lease, error) {
	leases, err := im.js.KeyValue(ctx, wire.LeaseBucket(im.site))
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", wire.LeaseBucket(im.site), err)
	}
	note := time.AfterFunc(noteAfter, func() {
		im.report.shown.Say("waiting: another import for %s runs, or one was killed less than %v ago", im.instrument, wire.LeaseTTL)
	})
	defer note.Stop()
	wait, cancel := context.WithTimeout(ctx, im.wait)
	defer cancel()
	host, _ := os.Hostname() // it is for people
	lease, err := stream.AcquireLease(wait, leases, wire.ImportLease(im.instrument), wire.Lease{Holder: host, Incarnation: im.run}, slog.New(slog.DiscardHandler))
	if err != nil && ctx.Err() == nil && wait.Err() != nil {
		return nil, fmt.Errorf("another import for %s still runs after %v: wait for its end, or for longer (--wait)", im.instrument, im.wait)
	}
	return lease, err
}

// awaitListed waits until the manifests list all that was announced of the
// instrument: from then on they alone say what was imported.
func (im *importer) awaitListed(ctx context.Context) error {
	name := wire.NoticeStream(im.site)
	notices, err := im.js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	var last uint64
	for _, subject := range wire.SelectedNotices(im.site, im.instrument, true) {
		m, err := notices.GetLastMsgForSubject(ctx, subject)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		last = max(last, m.Sequence)
	}
	if last == 0 {
		return nil
	}
	want := wire.StreamCursor{Epoch: wire.StreamEpoch(notices.CachedInfo().Created), Next: last + 1}
	cursors, err := im.js.KeyValue(ctx, wire.CursorBucket(im.site))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", wire.CursorBucket(im.site), err)
	}
	began, told := time.Now(), false
	for {
		cursor, err := noticeCursor(ctx, cursors)
		if err != nil || (cursor.Epoch == want.Epoch && cursor.Next >= want.Next) {
			return err
		}
		if time.Since(began) > im.wait {
			return fmt.Errorf("after %v the manifests do not list what was announced of %s: does a gateway run? See substorm status, or wait for longer (--wait)", im.wait, im.instrument)
		}
		if !told && time.Since(began) > noteAfter {
			told = true
			im.report.shown.Say("waiting until the manifests list what was announced of %s before; they do within about a minute", im.instrument)
		}
		if !retry.Sleep(ctx, pollInterval) {
			return ctx.Err()
		}
	}
}

func noticeCursor(ctx context.Context, cursors jetstream.KeyValue) (wire.StreamCursor, error) {
	cursor, _, err := stream.Record[wire.StreamCursor](ctx, cursors, wire.NoticeCursorKey)
	return cursor, err
}
