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
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/bench/internal/web"
	"github.com/substorm/substorm/cli/archive"
	"github.com/substorm/substorm/internal/wire"
)

// The instruments whose objects are asked for: the image that live pages show, those of days in folders of hours, and what is large.
const (
	live  = "allsky-live"
	old   = "allsky-old"
	films = "films"
)

// Sizes in bytes are those of storm-day, which follow from the study.
const (
	liveSize = 126_000
	fileSize = 54_000
	bulkSize = 394_000
	filmSize = 1_000_000
)

const (
	days, perHour      = 4, 5
	manyFilms, manyBig = 10, 20
	// liveEvery is how soon another live image comes.
	liveEvery = 5 * time.Second
)

// images are what feed servers are asked for, and how it comes there.
type images struct {
	gateways                  *targets
	files, pages, films, bulk []string
}

// fill sends what is old, by the Site's own gateway, and waits until feed servers serve it.
func (b *bench) fill(ctx context.Context) (*images, error) {
	found, err := pods{b.kubeconfig, site, imagesPort}.follow(ctx)
	if err != nil {
		return nil, err
	}
	a := &images{gateways: found}
	group, inGroup := errgroup.WithContext(ctx)
	group.SetLimit(4)
	seed := 0
	put := func(instrument, name string, size int) string {
		seed++
		body := web.Noise(size, seed)
		group.Go(func() error { return a.put(inGroup, instrument, name, body) })
		return "/archive/" + instrument + "/n/" + name
	}
	begin := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -days)
	for hour := range 24 * days {
		at := begin.Add(time.Duration(hour) * time.Hour)
		folder := at.Format("2006/01/02/ut15")
		a.pages = append(a.pages, "/archive/"+old+"/n/"+folder+"/")
		for n := range perHour {
			a.files = append(a.files, put(old, folder+at.Add(time.Duration(n)*time.Hour/perHour).Format("/20060102_150405.jpg"), fileSize))
		}
	}
	for n := range manyFilms {
		a.films = append(a.films, put(films, fmt.Sprintf("night-%02d.mp4", n), filmSize))
	}
	for n := range manyBig {
		a.bulk = append(a.bulk, put(films, fmt.Sprintf("bulk-%02d.jpg", n), bulkSize))
	}
	group.Go(func() error { return a.put(inGroup, live, "000000.jpg", web.Noise(liveSize, 0)) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, p := range policies {
		if err := b.served(ctx, p, append([]string{"/latest/" + live, a.files[len(a.files)-1], a.films[0], a.bulk[len(a.bulk)-1]}, a.pages...)); err != nil {
			return nil, err
		}
	}
	b.line("the archive has %d files in %d folders, %d films and %d large files", len(a.files), len(a.pages), len(a.films), len(a.bulk))
	return a, nil
}

func (a *images) put(ctx context.Context, instrument, name string, body []byte) error {
	address, err := a.gateways.pick()
	if err != nil {
		return err
	}
	url := "http://" + address + "/in/" + instrument + "/" + name
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "image/jpeg")
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

// keepLive makes another image the newest again and again, until ctx ends.
func (b *bench) keepLive(ctx context.Context) {
	for tick := time.NewTicker(liveEvery); ; {
		select {
		case now := <-tick.C:
			if err := b.images.put(ctx, live, now.UTC().Format("20060102T150405.jpg"), web.Noise(liveSize, int(now.Unix()))); err != nil && ctx.Err() == nil {
				b.line("the live image: %v", err)
			}
		case <-ctx.Done():
			tick.Stop()
			return
		}
	}
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
