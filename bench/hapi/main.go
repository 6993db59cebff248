// SPDX-License-Identifier: Apache-2.0

// Command hapi measures a day of 1 Hz with three components over HAPI, as CSV and binary, beside the same bytes as a file, its first byte, and the memory of longer spans.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/bench/internal/web"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// repeats of the requests by which memory and processor time are measured.
	repeats = 3
	// daysVariable is how many days there are: how long the long span is, and how many rounds there are, each with a day that was not
	// requested before.
	daysVariable = "SUBSTORM_BENCH_HAPI_DAYS"
	// moreMemory is the memory that a span of many days may take, divided by the memory for one day.
	moreMemory = 1.2
	// enough for feed-server to hold all days and their files, and little of one, in bytes.
	enough = 1 << 30
	little = 32 << 20
)

var formats = []string{"csv", "binary"}

// The candidates.
const (
	samples = "HAPI"
	file    = "file"
	again   = " again"
	one     = "GET of one segment"
	fetched = "its segments from the S3 server"
	// atATime are fetched at a time, as HAPI does.
	atATime = 8
)

func main() { lab.Run(run) }

func run(l *lab.Lab) error {
	ctx := context.Background()
	days, err := lab.Number(daysVariable, 12, 2)
	if err != nil {
		return err
	}
	site := web.NewSite(l, web.Options{Instruments: []wire.InstrumentEntry{magnetometer(), web.Camera(files, time.Minute)},
		Flags: []string{"--archive-size", strconv.Itoa(enough)}})
	f := filler{site: site, begin: time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -days-1)}
	filled, err := f.fill(ctx, days)
	if err != nil {
		return err
	}
	b := &bench{site: site, report: report.New("hapi", days), begin: f.begin, days: days, filled: filled,
		client: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
	if err := b.measure(ctx); err != nil {
		return err
	}
	return b.report.Finish()
}

type bench struct {
	site   *web.Site
	report *report.Report
	begin  time.Time
	days   int
	// filled are the segments of each day.
	filled []segments
	client *http.Client
}

func (b *bench) measure(ctx context.Context) error {
	if err := b.site.Await(ctx, b.data("csv", 0, b.days)); err != nil {
		return err
	}
	for day := range b.report.Each() {
		if err := b.round(ctx, formats[day%len(formats)], day); err != nil {
			return err
		}
	}
	memory, err := b.memory(ctx)
	if err != nil {
		return err
	}
	r := b.report
	r.Note("86,400 samples of three components a day, decoded from CSV in datagrams, in segments of ten minutes; one request at a time, feed-server on one core.")
	r.Note("All bytes come from the S3 server, those of files too; of what is asked for again, out of feed-server's memory.")
	r.Note("Beside it the day's segments alone, fetched %d at a time from the S3 server, by as many bytes as HAPI makes of them.", atATime)
	for _, format := range formats {
		r.Compare(format+"/file", []report.Pair{{Case: format, Candidate: samples, OfCase: format, OfCandidate: file}}, ">=", 0.25)
		r.Compare(format+"/S3", []report.Pair{{Case: format, Candidate: samples, OfCase: format, OfCandidate: fetched}}, "", 0)
		r.Compare(format+again+"/file", []report.Pair{{Case: format, Candidate: samples + again, OfCase: format, OfCandidate: file}}, "", 0)
		r.Compare(format+again+"/file"+again, []report.Pair{{Case: format, Candidate: samples + again, OfCase: format, OfCandidate: file + again}}, "", 0)
		r.Compare(format+",first-byte/segment-GET", []report.Pair{{Case: format, Candidate: samples + ", first byte", OfCase: format, OfCandidate: one}}, "<=", 2)
	}
	r.Bound(fmt.Sprintf("memory,%d-days/one", b.days), []float64{memory}, "<=", moreMemory)
	return nil
}

// data is a request for so many days from one on.
func (b *bench) data(format string, day, days int) string {
	at := func(day int) []string { return []string{b.begin.AddDate(0, 0, day).Format(time.RFC3339)} }
	q := url.Values{"dataset": {instrument + "/" + channel}, "start": at(day), "stop": at(day + days), "format": {format}}
	return "/hapi/data?" + q.Encode()
}

// memory returns the peak of feed-server's in many days, by that in one. It is another
// one, which holds little of what it reads for those who come next, and that already.
func (b *bench) memory(ctx context.Context) (float64, error) {
	b.site.Start("--archive-size", strconv.Itoa(little))
	if err := b.site.Await(ctx, b.data("csv", 0, b.days)); err != nil {
		return 0, err
	}
	if _, err := b.get(ctx, b.data("csv", 0, b.days), io.Discard); err != nil {
		return 0, err
	}
	var peaks []float64
	for _, days := range []int{1, b.days} {
		if err := process.ForgetPeak(b.site.Server.PID()); err != nil {
			return 0, err
		}
		for range repeats {
			a, err := b.get(ctx, b.data("csv", 0, days), io.Discard)
			if err != nil {
				return 0, err
			}
			if lines := a.lines; lines != int64(days)*86_400 {
				return 0, fmt.Errorf("%d days have %d samples", days, lines)
			}
		}
		peak, err := process.PeakMiB(b.site.Server.PID())
		if err != nil {
			return 0, err
		}
		b.report.Add(fmt.Sprintf("days asked for at once: %d", days), "resident at most", "MiB", peak)
		peaks = append(peaks, peak)
	}
	return peaks[1] / peaks[0], nil
}

// file puts what HAPI says of a day into the archive, and returns where it is served.
func (b *bench) file(ctx context.Context, format string, day int, body []byte) (string, error) {
	o := web.Object{Instrument: files, Name: fmt.Sprintf("day-%d.%s", day, format), MediaType: "application/octet-stream", Body: body, At: time.Now().UTC()}
	if _, err := b.site.Put(ctx, o); err != nil {
		return "", err
	}
	return o.URL(), b.site.Await(ctx, o.URL())
}

type buffer []byte

// Write implements io.Writer.
func (b *buffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

// round asks for a day: first for a segment of it, and for all of it twice.
func (b *bench) round(ctx context.Context, format string, day int) error {
	pids := []int{b.site.Server.PID(), b.site.MinIO.PID()}
	segment, err := b.get(ctx, b.filled[day].path, io.Discard)
	if err != nil {
		return err
	}
	b.report.Add(format, one, "ms", milliseconds(segment.whole))
	before, err := process.Times(pids)
	if err != nil {
		return err
	}
	var body buffer
	first, err := b.get(ctx, b.data(format, day, 1), &body)
	if err != nil {
		return err
	}
	after, err := process.Times(pids)
	if err != nil {
		return err
	}
	b.rate(format, samples, first)
	b.report.Add(format, samples+", first byte", "ms", milliseconds(first.first))
	for i, of := range []string{"feed-server", "S3 server"} {
		b.report.Add(format, samples+", processor time of the "+of, "ms", milliseconds(after[i]-before[i]))
	}
	whole, err := b.fetch(ctx, b.filled[day].keys)
	if err != nil {
		return err
	}
	b.rate(format, fetched, answer{whole: whole, bytes: first.bytes})
	path, err := b.file(ctx, format, day, body)
	if err != nil {
		return err
	}
	for _, ask := range []struct{ candidate, path string }{{file, path}, {samples + again, b.data(format, day, 1)}, {file + again, path}} {
		a, err := b.get(ctx, ask.path, io.Discard)
		if err != nil {
			return err
		}
		if a.bytes != first.bytes {
			return fmt.Errorf("HAPI has %d bytes, %s %d", first.bytes, ask.candidate, a.bytes)
		}
		b.rate(format, ask.candidate, a)
	}
	return nil
}

// fetch returns how long objects take from the S3 server to here, and no further.
func (b *bench) fetch(ctx context.Context, keys []string) (time.Duration, error) {
	begin := time.Now()
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(atATime)
	for _, key := range keys {
		all.Go(func() error {
			body, _, err := b.site.Store.Get(ctx, key, objectstore.All)
			if err != nil {
				return err
			}
			defer body.Close()
			_, err = io.Copy(io.Discard, body)
			return err
		})
	}
	err := all.Wait()
	return time.Since(begin), err
}

func (b *bench) rate(format, candidate string, a answer) {
	b.report.Add(format, candidate, "MB/s", float64(a.bytes)/a.whole.Seconds()/1e6)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// answer is what a client saw.
type answer struct {
	first, whole time.Duration
	bytes, lines int64
}

func (b *bench) get(ctx context.Context, path string, to io.Writer) (a answer, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.site.URL(path), nil)
	if err != nil {
		return a, err
	}
	begin := time.Now()
	resp, err := b.client.Do(r)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("%s: %s", path, resp.Status)
	}
	part := make([]byte, 64<<10)
	for {
		n, err := resp.Body.Read(part)
		if n > 0 && a.bytes == 0 {
			a.first = time.Since(begin)
		}
		a.bytes += int64(n)
		for _, c := range part[:n] {
			if c == '\n' {
				a.lines++
			}
		}
		if _, err := to.Write(part[:n]); err != nil {
			return a, err
		}
		if err == io.EOF {
			a.whole = time.Since(begin)
			return a, nil
		}
		if err != nil {
			return a, fmt.Errorf("%s: %w", path, err)
		}
	}
}
