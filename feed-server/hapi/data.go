// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
)

// An answer is sent first in a small and then in larger pieces, in bytes.
const (
	firstPiece = 4 << 10
	piece      = 64 << 10
)

// mediaTypes of the formats.
var mediaTypes = map[format]string{
	formatCSV: "text/csv; charset=utf-8", formatBinary: "application/octet-stream", formatJSON: "application/json",
}

func (h *Handler) data(w http.ResponseWriter, r *http.Request, c *caller) *problem {
	asked, p := h.subject(r, c, "start", "stop", "include", "format")
	if p != nil {
		return p
	}
	d, chosen := asked.dataset, asked.chosen
	q, p := parseQuestion(asked.fields, asked.span)
	if p != nil {
		return p
	}
	of := d.describeSpan(asked.span, chosen, q)
	tag, err := h.tag(r, d, q, of, chosen)
	if err != nil {
		return failure(codeUpstream, "the archive does not answer").withCause(err)
	}
	header := w.Header()
	header.Set("ETag", tag)
	header.Set("Cache-Control", "no-cache") // kept by who likes, and asked for each time
	if matches(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	header.Set("Content-Type", mediaTypes[q.format])
	if r.Method == http.MethodHead {
		return nil
	}
	done, p := h.turn(r)
	if p != nil {
		return p
	}
	defer done()
	return h.stream(w, r, d, q, of, chosen)
}

// tag is the tag of an answer, made from the question, the declaration, and the records that the
// answer is made from. It is a weak one: the answer may be compressed.
func (h *Handler) tag(r *http.Request, d *dataset, q question, of info, chosen []int) (string, error) {
	delay := d.delay() + 2*cutTo
	records, err := h.cfg.Archive.Tag(r.Context(), d.instrument.Instrument, time.Unix(0, q.from).Add(-delay), time.Unix(0, q.to).Add(delay))
	if err != nil {
		return "", err
	}
	records = endpoint.RequestOf(r).ArchiveTag(d.instrument, records)
	declared, err := json.Marshal(d.channel)
	if err != nil {
		return "", err
	}
	described := []byte{}
	if q.header || q.format == formatJSON {
		if described, err = json.Marshal(of); err != nil {
			return "", err
		}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%d %d %s %t %v %t", declared, described, records, q.from, q.to, q.format, q.header, chosen, chosen == nil))
	return fmt.Sprintf(`W/"%x"`, sum[:12]), nil
}

// turn waits until few enough requests are being answered, and few enough of one client's.
func (h *Handler) turn(r *http.Request) (done func(), p *problem) {
	done, ok := h.turns.Take(r.Context(), endpoint.RequestOf(r))
	if ok {
		return done, nil
	}
	p = failure(codeInternal, "too many requests are being answered, or too many of yours").withStatus(http.StatusServiceUnavailable)
	return nil, p.after(int(endpoint.TurnPatience / time.Second))
}

// recheckAccess reports whether the caller may have what is being sent now, too. Errors:
// endpoint.ErrOver.
func recheckAccess(r *http.Request, d *dataset, q question) error {
	v := endpoint.RequestOf(r)
	in, err := v.Still(d.instrument.Instrument)
	if err == nil && !v.Sees(in, time.Unix(0, q.to-1)) {
		err = endpoint.ErrOver
	}
	return err
}

// stream sends the samples as they are found. Once it has begun, an error can only break
// it off.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, d *dataset, q question, of info, chosen []int) *problem {
	ctx := r.Context()
	m := newMerger(h.cfg.Archive, h.recent, d, q.from, q.to, h.cfg.Memory)
	defer func() {
		m.end()
		h.metrics.undecodable.WithLabelValues(d.instrument.Instrument, d.channel.Name).Add(float64(m.undecodable))
		h.metrics.distant.WithLabelValues(d.instrument.Instrument, d.channel.Name).Add(float64(m.distant))
	}()
	row, ok, err := m.next(ctx)
	if err != nil {
		reportDamage(r, d, err)
		return refusal(err)
	}
	b, err := prelude(of, q, ok)
	if err != nil {
		return failure(codeInternal, "").withCause(err)
	}
	out := newWriter(q.format, d, chosen)
	limit := firstPiece
	for ok {
		b = out.append(b, timeOf(row), row[timeWidth:])
		if len(b) >= limit {
			if err := recheckAccess(r, d, q); err != nil {
				h.breakOff(ctx, d, err)
			}
			if _, err := w.Write(b); err != nil {
				return nil // the client is gone
			}
			if limit == firstPiece { // what can be seen at once is
				_ = http.NewResponseController(w).Flush()
			}
			b, limit = b[:0], piece
		}
		if row, ok, err = m.next(ctx); err != nil {
			reportDamage(r, d, err)
			h.breakOff(ctx, d, err)
		}
	}
	if q.format == formatJSON {
		b = append(b, "\n]}\n"...)
	}
	if err := recheckAccess(r, d, q); err != nil {
		h.breakOff(ctx, d, err)
	}
	_, _ = w.Write(b) // the client may be gone
	return nil
}

// prelude is what stands before the first sample.
func prelude(of info, q question, some bool) ([]byte, error) {
	if !q.header && q.format != formatJSON {
		return nil, nil
	}
	of.Format = q.format
	c := codeOK
	if !some {
		c = codeNoData
	}
	b, err := json.Marshal(of.with(c))
	if err != nil {
		return nil, err
	}
	if q.format == formatJSON {
		return append(b[:len(b)-1], ",\"data\":[\n"...), nil
	}
	return append(append([]byte{'#'}, b...), '\n'), nil
}

// refusal is the answer to an error before anything was sent.
func refusal(err error) *problem {
	if errors.Is(err, errTooMuch) {
		return failure(codeTooMuch, "ask for a shorter time").withCause(err)
	}
	return failure(codeUpstream, "the archive does not answer, or an object in it is damaged").withCause(err)
}

// reportDamage reports an object to the access check whose bytes are not those that were received, or are
// gone.
func reportDamage(r *http.Request, d *dataset, err error) {
	if errors.Is(err, objectpath.ErrDamaged) || errors.Is(err, objectstore.ErrNotFound) {
		endpoint.RequestOf(r).Damaged(d.instrument.Instrument, err)
	}
}

// breakOff ends an answer so that its client sees that it is not whole.
func (h *Handler) breakOff(ctx context.Context, d *dataset, err error) {
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, endpoint.ErrOver):
		h.cfg.Log.Info("HAPI: aborting a response: the client may no longer read the rest of it", "dataset", d.id)
	default:
		h.metrics.aborted.Inc()
		h.cfg.Log.Error("HAPI: aborting a response", "dataset", d.id, "error", err)
	}
	panic(http.ErrAbortHandler)
}
