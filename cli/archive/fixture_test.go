// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const site = "thule"

var noon = time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.UTC)

// put stores an object as a gateway does and returns its record.
func put(t *testing.T, store objectstore.Store, instrument, text string, at time.Time) wire.Record {
	t.Helper()
	digest := wire.Digest(sha256.Sum256([]byte(text)))
	key := wire.RawKey(site, instrument, at, digest)
	r := wire.Record{
		ID: key, Key: key, Size: int64(len(text)), Digest: digest, MediaType: "text/plain", State: wire.StateCurrent,
		ReceivedAt: at, TimeSource: wire.TimeSourceReceived, Completeness: wire.CompletenessUnverified,
		Source: "192.0.2.7:40001", Gateway: "gateway-0", Incarnation: "one",
	}
	metadata, err := wire.ObjectMetadata(wire.Notice{Site: site, Instrument: instrument, Record: r})
	if err != nil {
		t.Fatal(err)
	}
	err = store.Put(t.Context(), key, strings.NewReader(text), r.Size, objectstore.PutOptions{ContentType: r.MediaType, Metadata: metadata, Digest: digest, CreateOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// list writes a part of a manifest.
func list(t *testing.T, store objectstore.Store, instrument string, day wire.Day, part int, records ...wire.Record) {
	t.Helper()
	m := wire.Manifest{Header: wire.ManifestHeader{Site: site, Instrument: instrument, Day: day, Writer: "gateway-0", Incarnation: "one"}, Records: records}
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	key := wire.ManifestPartKey(site, instrument, day, part)
	if err := store.Put(t.Context(), key, bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{CreateOnly: true}); err != nil {
		t.Fatal(err)
	}
}

// fixture is a real store with two instruments, three days and a duplicate.
type fixture struct {
	server               *testenv.MinIOServer
	bucket               string
	store                objectstore.Store
	frame, late, segment wire.Record
	duplicate, earlier   wire.Record
}

func newFixture(t *testing.T, opts testenv.MinIOOptions) *fixture {
	t.Helper()
	f := &fixture{server: testenv.SharedMinIO(t, opts), bucket: testenv.BucketName()}
	f.store = f.server.Bucket(t, f.bucket)
	f.earlier = put(t, f.store, "allsky-1", "frame of yesterday", noon.AddDate(0, 0, -1))
	f.frame = put(t, f.store, "allsky-1", "frame", noon)
	f.late = put(t, f.store, "allsky-1", "frame 2", noon.Add(time.Hour))
	f.duplicate = f.frame
	f.duplicate.ID, f.duplicate.Key, f.duplicate.State, f.duplicate.DuplicateOf = f.frame.Key+"x", f.frame.Key+"x", wire.StateDuplicate, f.frame.Key
	f.segment = put(t, f.store, "mag-1", "segment", noon)
	f.segment.Segment = &wire.SegmentRange{Channel: "raw", Epoch: "e", First: 1, Last: 9, Messages: 9, Datagrams: 600, DatagramBytes: 6000}
	list(t, f.store, "allsky-1", "2026-11-20", 1, f.earlier)
	list(t, f.store, "allsky-1", "2026-11-21", 1, f.frame, f.duplicate)
	list(t, f.store, "allsky-1", "2026-11-21", 2, f.late)
	list(t, f.store, "mag-1", "2026-11-21", 1, f.segment)
	return f
}

// flags are what a user types to get at the store without a cluster.
func (f *fixture) flags(t *testing.T) []string {
	t.Helper()
	args := []string{"--code", site, "--s3-endpoint", f.server.URL(), "--s3-bucket", f.bucket, "--s3-credentials-dir", testenv.CredentialsDir(t, f.server.Root())}
	if f.server.CA != nil {
		args = append(args, "--s3-tls-dir", f.server.CA.Dir(t, "client"))
	}
	return args
}

// run runs `substorm archive` and returns what it printed.
func run(t *testing.T, args ...string) (out, notes string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := Command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(args)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	err = cmd.ExecuteContext(ctx)
	return stdout.String(), stderr.String(), err
}

func must(t *testing.T, args ...string) (out, notes string) {
	t.Helper()
	out, notes, err := run(t, args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, notes)
	}
	return out, notes
}
