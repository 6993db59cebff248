// SPDX-License-Identifier: Apache-2.0

package https

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/substorm/substorm/internal/mirrorindex"
)

const (
	// maxDaysLines is how many months and days an instrument may have: those of three centuries, and a year of days for themselves.
	// maxEntries is how many objects a day may have.
	maxDaysLines = 4000
	maxEntries   = 1 << 20
	// maxRoot, maxLine and maxAnswer bound what is read of the index at once, in bytes. A list of a million objects has about 300 MB.
	maxRoot   = 64 << 20
	maxLine   = 1 << 20
	maxAnswer = 512 << 20
)

// Root returns the instruments of the other side, and the ETag of that. Unchanged: it has the
// ETag still. Errors: mirrorindex.ErrFormat, RefusedError, of the network.
func (c *Client) Root(ctx context.Context, etag string) (root mirrorindex.Root, now string, unchanged bool, err error) {
	r := request{method: http.MethodGet, path: mirrorindex.RootPath, header: map[string]string{}}
	if etag != "" {
		r.header["If-None-Match"] = etag
	}
	err = c.do(ctx, r, func(answer *http.Response) error {
		now = answer.Header.Get("ETag")
		if unchanged = answer.StatusCode == http.StatusNotModified; unchanged {
			return nil
		}
		root = mirrorindex.Root{}
		if err := json.NewDecoder(io.LimitReader(answer.Body, maxRoot)).Decode(&root); err != nil {
			return fmt.Errorf("%s%s is not the mirror index of a Substorm: %w", c.cfg.URL.Redacted(), mirrorindex.RootPath, err)
		}
		if err := root.Check(); err != nil {
			return fmt.Errorf("%s%s: %w", c.cfg.URL.Redacted(), mirrorindex.RootPath, err)
		}
		c.sends.Store(int64(root.Bundles))
		return nil
	})
	return root, now, unchanged, err
}

// Days returns what is answered to each question, the first line of each being that with
// the Instrument. Errors: RefusedError, ErrBroken, of the network.
func (c *Client) Days(ctx context.Context, questions []mirrorindex.DaysQuestion) ([][]mirrorindex.DaysLine, error) {
	var all [][]mirrorindex.DaysLine
	err := post(ctx, c, mirrorindex.DaysPath, questions, func() { all = nil }, func(line mirrorindex.DaysLine) (bool, error) {
		switch {
		case line.End:
			return true, nil
		case line.Instrument != "":
			if len(all) == len(questions) || line.Instrument != questions[len(all)].Instrument {
				return false, fmt.Errorf("%w: it is about instrument %.40q, which nobody asked for", ErrBroken, line.Instrument)
			}
			all = append(all, nil)
		case len(all) == 0:
			return false, fmt.Errorf("%w: it does not begin with an instrument", ErrBroken)
		case len(all[len(all)-1]) > maxDaysLines:
			return false, fmt.Errorf("%s%s tells of more than %d months and days of an instrument", c.cfg.URL.Redacted(), mirrorindex.DaysPath, maxDaysLines)
		default:
			if err := line.Check(); err != nil {
				return false, fmt.Errorf("%s%s: %w", c.cfg.URL.Redacted(), mirrorindex.DaysPath, err)
			}
		}
		all[len(all)-1] = append(all[len(all)-1], line)
		return false, nil
	})
	if err == nil && len(all) != len(questions) {
		err = fmt.Errorf("%w: it answers %d of %d questions", ErrBroken, len(all), len(questions))
	}
	return all, err
}

// List is the answer about one day.
type List struct {
	Head    mirrorindex.ListLine
	Entries []mirrorindex.Entry
}

// Lists returns what is answered to each question. Errors: as Days.
func (c *Client) Lists(ctx context.Context, questions []mirrorindex.ListQuestion) ([]List, error) {
	var all []List
	err := post(ctx, c, mirrorindex.ListsPath, questions, func() { all = nil }, func(line mirrorindex.ListLine) (bool, error) {
		switch {
		case line.End:
			return true, nil
		case line.Instrument != "":
			if q := len(all); q == len(questions) || line.Instrument != questions[q].Instrument || line.Day != questions[q].Day {
				return false, fmt.Errorf("%w: it is about %.40q and %.10q, which nobody asked for", ErrBroken, line.Instrument, line.Day)
			}
			all = append(all, List{Head: line})
		case len(all) == 0 || line.Entry == nil:
			return false, fmt.Errorf("%w: it does not begin with an instrument", ErrBroken)
		default:
			if err := line.Check(); err != nil {
				return false, fmt.Errorf("%s%s: %w", c.cfg.URL.Redacted(), mirrorindex.ListsPath, err)
			}
			last := &all[len(all)-1]
			if len(last.Entries) == maxEntries {
				return false, fmt.Errorf("%s%s tells of more than %d objects of a day", c.cfg.URL.Redacted(), mirrorindex.ListsPath, maxEntries)
			}
			last.Entries = append(last.Entries, *line.Entry)
		}
		return false, nil
	})
	if err == nil && len(all) != len(questions) {
		err = fmt.Errorf("%w: it answers %d of %d questions", ErrBroken, len(all), len(questions))
	}
	return all, err
}

// post asks questions and takes the lines of the answer, until take says that one is the
// last. Begin is called before the first one, each time that it is asked.
func post[Q, L any](ctx context.Context, c *Client, path string, questions []Q, begin func(), take func(L) (last bool, err error)) error {
	return c.do(ctx, request{method: http.MethodPost, path: path, body: body(questions), header: map[string]string{"Content-Type": mirrorindex.MediaLines}}, func(answer *http.Response) error {
		begin()
		bounded := &io.LimitedReader{R: answer.Body, N: maxAnswer}
		in := bufio.NewReaderSize(bounded, maxLine)
		for {
			text, err := in.ReadSlice('\n')
			if err != nil && bounded.N == 0 {
				return fmt.Errorf("%s%s answers with more than %d MiB, which is no list of a mirror index", c.cfg.URL.Redacted(), path, maxAnswer>>20)
			}
			if err != nil {
				if errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				return fmt.Errorf("%w: %w", ErrBroken, err)
			}
			var line L
			if err := json.Unmarshal(text, &line); err != nil {
				return fmt.Errorf("%w: %w", ErrBroken, err)
			}
			if last, err := take(line); last || err != nil {
				return err
			}
		}
	})
}

// body writes questions as JSON lines.
func body[Q any](questions []Q) []byte {
	var lines bytes.Buffer
	for _, q := range questions {
		_ = json.NewEncoder(&lines).Encode(q) // it is text and numbers
	}
	return lines.Bytes()
}
