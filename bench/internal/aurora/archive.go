// SPDX-License-Identifier: Apache-2.0

package aurora

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/bench/internal/web"
)

// The instruments of the archive.
const (
	// Live has the image that live pages show.
	Live = "allsky-live"
	// Old has the images of days, in folders of hours.
	Old = "allsky-old"
	// Films has what is large.
	Films = "films"
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
	perHour = 5
	films   = 10
	// liveEvery is how soon another live image comes.
	liveEvery = 5 * time.Second
)

// Archive says what there is to ask for, and how it is stored.
type Archive struct {
	// Days before today have images.
	Days int
	// Bulk is how many large files there are.
	Bulk int
	// Prefix stands before names in paths of URLs.
	Prefix string
	// Put stores an object.
	Put func(context.Context, web.Object) error
}

// Fill stores what is old and the first live image, and has a day ask for them.
func (a *Archive) Fill(ctx context.Context, d *Day) error {
	group, inGroup := errgroup.WithContext(ctx)
	group.SetLimit(4)
	seed := 0
	put := func(instrument, name, mediaType string, size int, at time.Time) string {
		seed++
		of := seed
		group.Go(func() error {
			return a.Put(inGroup, web.Object{Instrument: instrument, Name: name, MediaType: mediaType, At: at, Body: web.Noise(size, of)})
		})
		return web.Object{Instrument: instrument, Name: a.Prefix + name}.URL()
	}
	begin := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -a.Days)
	for hour := range 24 * a.Days {
		at := begin.Add(time.Duration(hour) * time.Hour)
		folder := at.Format("2006/01/02/ut15")
		d.Pages = append(d.Pages, web.Object{Instrument: Old, Name: a.Prefix + folder + "/"}.URL())
		for n := range perHour {
			shot := at.Add(time.Duration(n) * time.Hour / perHour)
			d.Files = append(d.Files, put(Old, folder+shot.Format("/20060102_150405.jpg"), "image/jpeg", fileSize, shot))
		}
	}
	for n := range films {
		d.Films = append(d.Films, put(Films, fmt.Sprintf("night-%02d.mp4", n), "video/mp4", filmSize, begin.AddDate(0, 0, n)))
	}
	for n := range a.Bulk {
		d.Bulk = append(d.Bulk, put(Films, fmt.Sprintf("bulk-%02d.jpg", n), "image/jpeg", bulkSize, begin.Add(time.Duration(n)*time.Minute)))
	}
	put(Live, "000000.jpg", "image/jpeg", liveSize, time.Now().UTC())
	return group.Wait()
}

// Last are the paths that a server has once it has all that a day asks for.
func (d *Day) Last() []string {
	return append([]string{"/latest/" + Live, d.Files[len(d.Files)-1], d.Films[len(d.Films)-1], d.Bulk[len(d.Bulk)-1]}, d.Pages...)
}

// KeepLive makes another image the newest again and again, until ctx ends.
func (a *Archive) KeepLive(ctx context.Context) {
	for tick := time.NewTicker(liveEvery); ; {
		select {
		case now := <-tick.C:
			err := a.Put(ctx, web.Object{Instrument: Live, Name: now.UTC().Format("20060102T150405.jpg"), MediaType: "image/jpeg", At: now.UTC(), Body: web.Noise(liveSize, int(now.Unix()))})
			if err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "the live image:", err)
			}
		case <-ctx.Done():
			tick.Stop()
			return
		}
	}
}
