// SPDX-License-Identifier: Apache-2.0

// Command hapi measures a day of 1 Hz with three components over HAPI, as CSV and binary, beside the same bytes as a file, its first byte, and the memory of longer spans.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/bench/internal/web"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// repeats of the requests by which memory is measured.
	repeats = 3
	// daysVariable is how many days there are: how long the long span is, and how many
	// rounds there are, each with a day that nobody asked for lately.
	daysVariable = "SUBSTORM_BENCH_HAPI_DAYS"
	// memory that a span of many days may take, by that of one.
	moreMemory = 1.2
)

var formats = []string{"csv", "binary"}

// The candidates.
const (
	samples = "HAPI"
	file    = "file"
	one     = "GET of one segment"
)

func main() { lab.Run(run) }

func run(l *lab.Lab) error {
	ctx := context.Background()
	days := 10
	if text := os.Getenv(daysVariable); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 2 {
			return fmt.Errorf("%s=%s: it takes a number, at least 2", daysVariable, text)
		}
		days = n
	}
	site := web.NewSite(l, web.Options{Instruments: []wire.InstrumentEntry{magnetometer(), web.Camera(files, time.Minute)}})
	f := filler{site: site, begin: time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -days-1)}
	segments, err := f.fill(ctx, days)
	if err != nil {
		return err
	}
	b := &bench{site: site, report: report.New("hapi", days), begin: f.begin, days: days, segments: segments,
		client: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
	if err := b.measure(ctx); err != nil {
		return err
	}
	if err := b.report.Save(); err != nil {
		return err
	}
	return b.report.Print(os.Stdout)
}

type bench struct {
	site   *web.Site
	report *report.Report
	begin  time.Time
	days   int
	// segments are where a segment of each day is served.
	segments []string
	client   *http.Client
}

func (b *bench) measure(ctx context.Context) error {
	if err := b.site.Await(ctx, b.data("csv", 0, b.days)); err != nil {
		return err
	}
	memory, err := b.memory(ctx)
	if err != nil {
		return err
	}
	for day := range b.days {
		for _, format := range formats {
			if err := b.file(ctx, format, day); err != nil {
				return err
			}
		}
	}
	for day := range b.days {
		for _, format := range formats {
			if err := b.round(ctx, format, day); err != nil {
				return err
			}
		}
		fmt.Fprintf(os.Stderr, "round %d of %d is done\n", day+1, b.days)
	}
	r := b.report
	r.Note("86,400 samples of three components a day, decoded from CSV in datagrams, in segments of ten minutes; one request at a time, feed-server on one core.")
	r.Note("All bytes come from the S3 server, those of files too.")
	for _, format := range formats {
		r.Compare(format+"/file", []report.Pair{{Case: format, Candidate: samples, OfCase: format, OfCandidate: file}}, ">=", 0.25)
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

// memory returns the peak of feed-server's after many days, by that after one.
func (b *bench) memory(ctx context.Context) (float64, error) {
	var peaks []float64
	for _, days := range []int{1, b.days} {
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

// file puts what HAPI says of a day into the archive.
func (b *bench) file(ctx context.Context, format string, day int) error {
	var body buffer
	if _, err := b.get(ctx, b.data(format, day, 1), &body); err != nil {
		return err
	}
	o := web.Object{Instrument: files, Name: fileName(format, day), MediaType: "application/octet-stream", Body: body, At: time.Now().UTC()}
	if _, err := b.site.Put(ctx, o); err != nil {
		return err
	}
	return b.site.Await(ctx, o.URL())
}

func fileName(format string, day int) string { return fmt.Sprintf("day-%d.%s", day, format) }

type buffer []byte

// Write implements io.Writer.
func (b *buffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

func (b *bench) round(ctx context.Context, format string, day int) error {
	asks := []struct{ candidate, path string }{{samples, b.data(format, day, 1)}, {file, "/archive/" + files + "/" + fileName(format, day)}, {one, b.segments[2*day]}}
	if format != formats[0] {
		asks[2].path = b.segments[2*day+1]
	}
	if day%2 == 1 {
		asks[0], asks[1] = asks[1], asks[0]
	}
	sums := map[string]answer{}
	for _, ask := range asks {
		a, err := b.get(ctx, ask.path, io.Discard)
		if err != nil {
			return err
		}
		sums[ask.candidate] = a
	}
	if sums[samples].bytes != sums[file].bytes {
		return fmt.Errorf("HAPI has %d bytes, the file %d", sums[samples].bytes, sums[file].bytes)
	}
	for _, c := range []string{samples, file} {
		b.report.Add(format, c, "MB/s", float64(sums[c].bytes)/sums[c].whole.Seconds()/1e6)
	}
	b.report.Add(format, samples+", first byte", "ms", milliseconds(sums[samples].first))
	b.report.Add(format, one, "ms", milliseconds(sums[one].whole))
	return nil
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
