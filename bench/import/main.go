// SPDX-License-Identifier: Apache-2.0

// Command import measures the import of a million files where they lie, beside reading and digesting them, and again after 100 of them changed.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/receiver"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/cli/importer"
	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// again is how often the second run is measured; the first is once: it takes minutes.
	again   = 5
	changed = 100
	// sample is how many files are read for the peer, before and after the import.
	sample = 20_000
	// filesVariable makes a smaller tree.
	filesVariable = "SUBSTORM_BENCH_IMPORT_FILES"
	million       = 1_000_000
)

func main() { lab.Run(run, receiver.Main) }

func run(l *lab.Lab) error {
	ctx := context.Background()
	files, err := lab.Number(filesVariable, million, sample)
	if err != nil {
		return err
	}
	r := report.New("import", again)
	nats, minio := testenv.NATS(l, testenv.NATSOptions{}), testenv.MinIO(l, testenv.MinIOOptions{})
	js := nats.JetStream(l)
	testenv.CreateSite(l, js, receiver.SiteCode)
	if err := lab.Widen(ctx, js, wire.NoticeStream(receiver.SiteCode), noticeBytes); err != nil {
		return err
	}
	minio.Bucket(l, receiver.BucketName)
	bucket := receiver.BucketOf(minio.Config(receiver.BucketName))
	t, err := openTree(bucket, files)
	if err != nil {
		return err
	}
	if err := t.fill(ctx, func(n int64) { fmt.Fprintf(os.Stderr, "%d of %d files are in the bucket\n", n, files) }); err != nil {
		return err
	}
	receiver.StartSite(l, receiver.Backends{Bucket: bucket, NATS: nats.URL()}, receiver.Options{PartInterval: partInterval})
	config, err := configure(l, bucket, nats.URL())
	if err != nil {
		return err
	}
	if err := measure(ctx, r, t, config); err != nil {
		return err
	}
	return r.Finish()
}

// noticeBytes is space for the notices of all files in their stream.
const noticeBytes = 4 << 30

func configure(l *lab.Lab, b receiver.Bucket, nats string) (importer.Config, error) {
	dir := l.TempDir()
	for name, text := range map[string]string{objectstore.FileAccessKeyID: b.AccessKeyID, objectstore.FileSecretAccessKey: b.SecretAccessKey} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return importer.Config{}, err
		}
	}
	return importer.Config{
		Backend: backend.Options{Code: receiver.SiteCode, S3Endpoint: b.Endpoint, S3Bucket: b.Name, S3CredentialsDir: dir, NATSServers: []string{nats}},
		Tree:    b.Name + "/" + prefix, InPlace: true, Instrument: receiver.Instrument, NameTemplate: template,
		Settle: 0, Parallel: parallel, Wait: time.Hour, Format: output.JSON, Quiet: true, Notes: os.Stderr,
	}, nil
}

// partInterval is how soon the manifests list what was imported: the next run waits for that.
const partInterval = time.Second

// parallel is how many files are read at the same time, by the peer too.
const parallel = 8

func measure(ctx context.Context, r *report.Report, t *tree, config importer.Config) error {
	before, err := t.digests(ctx, sample, parallel)
	if err != nil {
		return err
	}
	first, err := once(ctx, config)
	if err != nil {
		return err
	}
	if first.Registered != uint64(t.files) {
		return fmt.Errorf("the first run registered %d of %d files", first.Registered, t.files)
	}
	after, err := t.digests(ctx, sample, parallel)
	if err != nil {
		return err
	}
	r.Note("%d files of %d B, %d of a day; the first run took %.1f s, all of its bytes were read and digested.", t.files, fileSize, aDay, first.Seconds)
	own := float64(t.files) / first.Seconds
	r.Add("first run", "import", "files/s", own)
	r.Add("first run", "read and digest alone", "files/s", (before+after)/2)
	var shares, listings []float64
	for i := range again {
		if err := t.change(ctx, changed, i+2); err != nil {
			return err
		}
		next, err := once(ctx, config)
		if err != nil {
			return err
		}
		if next.Registered != changed || next.Unchanged != uint64(t.files-changed) {
			return fmt.Errorf("of %d changed files the next run registered %d and passed over %d", changed, next.Registered, next.Unchanged)
		}
		listing, err := t.list(ctx)
		if err != nil {
			return err
		}
		r.Add("again, 100 changed", "import again", "s", next.Seconds)
		r.Add("again, 100 changed", "listing alone", "s", listing.Seconds())
		shares, listings = append(shares, next.Seconds/first.Seconds), append(listings, next.Seconds/listing.Seconds())
		fmt.Fprintf(os.Stderr, "run %d of %d is done: %.1f s, the first %.1f s, listing %.1f s\n", i+1, again, next.Seconds, first.Seconds, listing.Seconds())
	}
	r.Note("Read and digest alone: minio-go and SHA-256, %d at a time as the import, %d files before and after it. Listing alone: minio-go lists the tree.", parallel, sample)
	r.Bound("first-run/read-and-digest", []float64{own / ((before + after) / 2)}, "", 0)
	r.Bound("again/listing", listings, "", 0)
	r.Bound("again/first-run", shares, "<=", 0.02)
	return nil
}

// once imports and returns what the last line of the report says.
func once(ctx context.Context, config importer.Config) (importer.Summary, error) {
	var out bytes.Buffer
	config.Out = &out
	var s importer.Summary
	if err := importer.Run(ctx, config); err != nil {
		return s, err
	}
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], &s); err != nil {
		return s, err
	}
	if s.Outcome != importer.OutcomeSummary {
		return s, errors.New("the import ended without a summary")
	}
	return s, nil
}
