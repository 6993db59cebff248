// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/dustin/go-humanize"

	"github.com/substorm/substorm/internal/wire"
)

// Report is what became of a run.
type Report struct {
	Model string `json:"model"`
	Seed  uint64 `json:"seed"`
	// PlannedSeconds is the plan's duration, TookSeconds how long sending it took.
	PlannedSeconds float64        `json:"plannedSeconds"`
	TookSeconds    float64        `json:"tookSeconds"`
	Senders        int            `json:"senders"`
	Sources        []SourceReport `json:"sources"`
	Total          SourceReport   `json:"total"`
	// Receipt is how long receipts took from the instant when the object was
	// due (in a model without a rhythm: when its sending began), so that an
	// object that waits for a free sender waits in the figures too.
	Receipt *Latency `json:"receipt,omitempty"`
	// Sending is the same from the instant when sending began, repeats included.
	Sending *Latency `json:"sending,omitempty"`
}

// SourceReport counts what one source sent.
type SourceReport struct {
	Name     string   `json:"name,omitempty"`
	Protocol Protocol `json:"protocol,omitempty"`
	// Sent to their end: objects, or datagrams; Bytes of these.
	Sent  int64 `json:"sent"`
	Bytes int64 `json:"bytes"`
	// Receipted of these, with their bytes; Refused by cause; Unknown have no
	// receipt and may be stored.
	Receipted      int64                `json:"receipted"`
	ReceiptedBytes int64                `json:"receiptedBytes"`
	Refused        map[wire.Cause]int64 `json:"refused,omitempty"`
	Unknown        int64                `json:"unknown"`
	// Unsent never left whole. Lost datagrams were turned away by their host.
	Unsent int64 `json:"unsent"`
	Lost   int64 `json:"lost"`
	// Repeated tries of objects.
	Repeated int64 `json:"repeated"`
}

// Latency is a histogram, in milliseconds.
type Latency struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"meanMillis"`
	P50   float64 `json:"p50Millis"`
	P90   float64 `json:"p90Millis"`
	P99   float64 `json:"p99Millis"`
	P999  float64 `json:"p999Millis"`
	Max   float64 `json:"maxMillis"`
	// Histogram is the whole of it, in microseconds, as HdrHistogram encodes it
	// (version 2, compressed, base64): any HdrHistogram library reads and merges it.
	Histogram string `json:"histogram"`
}

func (t *tally) report(cfg *Config, took time.Duration) *Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &Report{
		Model: cfg.Model.Name, Seed: cfg.Seed, Senders: cfg.Senders,
		PlannedSeconds: cfg.Duration.Seconds(), TookSeconds: took.Seconds(),
		Sources: t.sources, Total: total(t.sources), Receipt: latency(t.receipt), Sending: latency(t.sending),
	}
}

func total(sources []SourceReport) SourceReport {
	var sum SourceReport
	for _, s := range sources {
		sum.Sent += s.Sent
		sum.Bytes += s.Bytes
		sum.Receipted += s.Receipted
		sum.ReceiptedBytes += s.ReceiptedBytes
		sum.Unknown += s.Unknown
		sum.Unsent += s.Unsent
		sum.Lost += s.Lost
		sum.Repeated += s.Repeated
		for cause, n := range s.Refused {
			if sum.Refused == nil {
				sum.Refused = map[wire.Cause]int64{}
			}
			sum.Refused[cause] += n
		}
	}
	return sum
}

func (s *SourceReport) refused() int64 {
	n := int64(0)
	for _, k := range s.Refused {
		n += k
	}
	return n
}

// missing is what has no receipt though it should, or was not sent, or is known to be lost.
func (s *SourceReport) missing() int64 { return s.refused() + s.Unknown + s.Unsent + s.Lost }

func latency(h *hdrhistogram.Histogram) *Latency {
	if h.TotalCount() == 0 {
		return nil
	}
	encoded, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil { // the encoder knows our histograms
		encoded = nil
	}
	at := func(q float64) float64 { return millis(h.ValueAtQuantile(q)) }
	return &Latency{
		Count: h.TotalCount(), Mean: h.Mean() / 1000, P50: at(50), P90: at(90), P99: at(99), P999: at(99.9),
		Max: millis(h.Max()), Histogram: string(encoded),
	}
}

func millis(us int64) float64       { return float64(us) / 1000 }
func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
func (l *Latency) text() string {
	return fmt.Sprintf("p50 %s  p90 %s  p99 %s  p99.9 %s  max %s", ms(l.P50), ms(l.P90), ms(l.P99), ms(l.P999), ms(l.Max))
}
func ms(v float64) string {
	return time.Duration(v * float64(time.Millisecond)).Round(10 * time.Microsecond).String()
}

// failure says what has no receipt, or nil.
func (r *Report) failure(examples []string) error {
	missing := r.Total.missing()
	switch {
	case missing > 0:
		return fmt.Errorf("%d of %d objects and datagrams failed:\n  %s", missing, r.Total.Sent+r.Total.Unsent, strings.Join(examples, "\n  "))
	case r.Total.Sent == 0:
		return errors.New("nothing was due: --duration is shorter than the model's rhythm")
	default:
		return nil
	}
}

// WriteText writes the report for people.
func (r *Report) WriteText(out io.Writer) {
	fmt.Fprintf(out, "model %s, seed %d, %v planned, %v taken, %d senders\n\n", r.Model, r.Seed,
		seconds(r.PlannedSeconds), seconds(r.TookSeconds).Round(time.Millisecond), r.Senders)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "SOURCE\tOVER\tSENT\tBYTES\tRECEIPTED\tREFUSED\tUNKNOWN\tUNSENT\tLOST\tAGAIN\t")
	all := r.Sources
	if len(all) > 1 {
		sum := r.Total
		sum.Name = "total"
		all = append(slices.Clone(all), sum)
	}
	for _, s := range all {
		receipted := fmt.Sprint(s.Receipted)
		if s.Protocol == UDP {
			receipted = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t\n", s.Name, s.Protocol, s.Sent, humanize.IBytes(uint64(s.Bytes)),
			receipted, s.refused(), s.Unknown, s.Unsent, s.Lost, s.Repeated)
	}
	_ = w.Flush()
	for _, cause := range slices.Sorted(maps.Keys(r.Total.Refused)) {
		fmt.Fprintf(out, "refused %s: %d\n", cause, r.Total.Refused[cause])
	}
	if r.TookSeconds > 0 {
		fmt.Fprintf(out, "\n%.1f a second, %s/s\n", float64(r.Total.Sent)/r.TookSeconds, humanize.IBytes(uint64(float64(r.Total.Bytes)/r.TookSeconds)))
	}
	if r.Receipt != nil {
		fmt.Fprintf(out, "receipt since due:      %s\nreceipt since sending:  %s\n", r.Receipt.text(), r.Sending.text())
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
