// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/bench/internal/web"
)

// The instruments.
const (
	// live has the image that live pages show.
	live = "allsky-live"
	// old has the images of weeks, in folders of hours.
	old = "allsky-1"
	// films has what is large.
	films = "films"
)

// Sizes in bytes follow from the study: 57 KB a request; the hottest URL has 18 % of the
// requests and 40 % of the bytes, other images 34 and 33, robot B 1.1 and 7.6, and what
// is no image the rest.
const (
	liveSize = 126_000
	fileSize = 54_000
	bulkSize = 394_000
	filmSize = 1_000_000
)

const (
	days    = 20
	perHour = 5
	bulks   = 40
	films1  = 10
	// liveEvery is how soon another live image comes.
	liveEvery = 5 * time.Second
)

// archive is what is asked for.
type archive struct {
	site *web.Site
	// files, films and bulk are paths of URLs, and pages those of folders.
	files, films, bulk, pages []string
}

// fill stores what is old.
func (a *archive) fill(ctx context.Context) error {
	group, inGroup := errgroup.WithContext(ctx)
	group.SetLimit(4)
	put := func(instrument, name, mediaType string, size int, at time.Time) string {
		o := web.Object{Instrument: instrument, Name: name, MediaType: mediaType, At: at}
		seed := len(a.files) + 10_000*(len(a.films)+len(a.bulk))
		group.Go(func() error {
			o.Body = web.Noise(size, seed)
			_, err := a.site.Put(inGroup, o)
			return err
		})
		return o.URL()
	}
	begin := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -days)
	for hour := range 24 * days {
		at := begin.Add(time.Duration(hour) * time.Hour)
		folder := at.Format("2006/01/02/ut15")
		a.pages = append(a.pages, "/archive/"+old+"/"+folder+"/")
		for n := range perHour {
			shot := at.Add(time.Duration(n) * time.Hour / perHour)
			a.files = append(a.files, put(old, folder+shot.Format("/20060102_150405.jpg"), "image/jpeg", fileSize, shot))
		}
	}
	for n := range films1 {
		a.films = append(a.films, put(films, fmt.Sprintf("night-%02d.mp4", n), "video/mp4", filmSize, begin.AddDate(0, 0, n)))
	}
	for n := range bulks {
		a.bulk = append(a.bulk, put(films, fmt.Sprintf("bulk-%02d.jpg", n), "image/jpeg", bulkSize, begin.Add(time.Duration(n)*time.Minute)))
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, path := range append([]string{a.files[len(a.files)-1], a.bulk[len(a.bulk)-1]}, a.pages...) {
		if err := a.site.Await(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// keepLive makes another image the newest again and again, until stop is called.
func (a *archive) keepLive(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	put := func(n int) {
		_, err := a.site.Put(ctx, web.Object{Instrument: live, Name: fmt.Sprintf("%06d.jpg", n), MediaType: "image/jpeg", Body: web.Noise(liveSize, n), At: time.Now().UTC()})
		if err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "the live image:", err)
		}
	}
	put(0)
	go func() {
		defer close(ended)
		for n := 1; ; n++ {
			select {
			case <-time.After(liveEvery):
				put(n)
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-ended }
}
