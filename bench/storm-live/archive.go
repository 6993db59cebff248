// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/substorm/substorm/bench/internal/aurora"
	"github.com/substorm/substorm/bench/internal/web"
	"github.com/substorm/substorm/cli/archive"
	"github.com/substorm/substorm/internal/wire"
)

// Days of images, and files for the second robot.
const days, bulk = 4, 20

// fill sends what is old, by the Site's own gateway, and waits until feed servers serve it.
func (b *bench) fill(ctx context.Context) error {
	gateways, err := pods{b.kubeconfig, site, imagesPort}.follow(ctx)
	if err != nil {
		return err
	}
	b.archive = aurora.Archive{Days: days, Bulk: bulk, Prefix: "n/", Put: func(ctx context.Context, o web.Object) error { return put(ctx, gateways, o) }}
	if err := b.archive.Fill(ctx, &b.day); err != nil {
		return err
	}
	for _, p := range policies {
		if err := b.served(ctx, p, b.day.Last()); err != nil {
			return err
		}
	}
	b.line("the archive has %d files in %d folders, %d films and %d large files", len(b.day.Files), len(b.day.Pages), len(b.day.Films), len(b.day.Bulk))
	return nil
}

// put sends an object to one of the gateways.
func put(ctx context.Context, gateways *targets, o web.Object) error {
	address, err := gateways.pick()
	if err != nil {
		return err
	}
	url := "http://" + address + "/in/" + o.Instrument + "/" + o.Name
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(o.Body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", o.MediaType)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // what is lost of it explains less
		return fmt.Errorf("PUT %s: %s: %s", url, resp.Status, said)
	}
	return nil
}

// served waits until a policy's feed servers have all paths.
func (b *bench) served(ctx context.Context, p policy, paths []string) error {
	found, err := p.feedServers(b.cluster).follow(ctx)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := await(ctx, func() error {
			address, err := found.pick()
			if err != nil {
				return err
			}
			resp, err := http.Get("http://" + address + path)
			if err != nil {
				return err
			}
			if resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s: %s", path, resp.Status)
			}
			return errors.Join(err, resp.Body.Close())
		}); err != nil {
			return err
		}
	}
	return nil
}

// compare holds the archive and its ledger to what senders hold receipts for, and reports what is lost.
func (b *bench) compare(ctx context.Context) error {
	for _, p := range policies {
		var lost, differences int
		err := await(ctx, func() (err error) {
			if lost, err = b.missing(ctx, p.camera); err != nil {
				return err
			}
			var short int
			if short, differences, err = b.ledger(ctx, p.camera); err != nil {
				return err
			}
			if lost = max(lost, short); lost > 0 || differences > 0 {
				return fmt.Errorf("%d of %d objects with a receipt are not in the archive of %s, and %d columns of its ledger differ", lost, len(b.receipts[p.camera]), p.camera, differences)
			}
			return nil
		})
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			b.report.Note("%v", err)
		}
		b.report.Note("Of %d receipts for objects of %s %d are lost, and %d columns of the ledger differ.", len(b.receipts[p.camera]), p.camera, lost, differences)
		b.lost = append(b.lost, float64(lost+differences))
	}
	return nil
}

// missing is how many objects with a receipt are not listed.
func (b *bench) missing(ctx context.Context, camera string) (int, error) {
	found := 0
	listed := map[wire.Digest]bool{}
	err := b.read(ctx, func(out io.Reader) error {
		return each(out, func(n wire.Notice) {
			if b.receipts[camera][n.Digest] && !listed[n.Digest] {
				listed[n.Digest] = true
				found++
			}
		})
	}, b.substorm, "archive", "ls", "--site", site, "-n", namespace, "--instrument", camera, "-o", "json")
	return len(b.receipts[camera]) - found, err
}

// ledger is by how many objects it is short of the receipts, and how many of its columns differ.
func (b *bench) ledger(ctx context.Context, camera string) (short, differences int, err error) {
	var objects, acknowledged uint64
	err = b.read(ctx, func(out io.Reader) error {
		return each(out, func(l archive.Ledger) {
			objects += l.Announced.Objects - l.Duplicates.Objects
			acknowledged += l.Received.Acknowledged
			differences += len(l.Differences)
		})
	}, b.substorm, "archive", "ledger", "--site", site, "-n", namespace, "--instrument", camera, "-o", "json")
	return max(0, len(b.receipts[camera])-int(min(objects, acknowledged))), differences, err
}

// each decodes documents of JSON, one after the other.
func each[T any](from io.Reader, do func(T)) error {
	for d := json.NewDecoder(from); ; {
		var one T
		switch err := d.Decode(&one); err {
		case nil:
			do(one)
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}
