// SPDX-License-Identifier: Apache-2.0

package https

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"time"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/mirror-jobs/bound"
)

const (
	// maxInstruments is how many instruments a Site may have, maxDaysLines how many months and days an instrument: those of three
	// centuries, and a year of days for themselves. maxEntries is how many objects a day may have.
	maxInstruments = 100_000
	maxDaysLines   = 4000
	maxEntries     = 1 << 20
	// maxRoot, maxLine and maxAnswer bound what is read of the index at once, in bytes. A list of a million objects has about 300 MB.
	maxRoot   = 16 << 20
	maxLine   = 1 << 20
	maxAnswer = 512 << 20
	// keptDays and keptLists bound the memory that an answer about days, and one about their lists, takes. A day of maxEntries objects
	// with paths and IDs of 60 characters takes 384 MiB.
	keptDays  = 64 << 20
	keptLists = 384 << 20
)

// Kept bounds the memory that an answer takes, in bytes; a zero field stands for the default.
type Kept struct{ Days, Lists int64 }

// askOwner is what to do about a list that is too long.
const askOwner = "ask the administrator of the pulled Site whether that Site answers; spec.selection narrows what is pulled from it"

// Root returns the instruments of the other side, and the ETag of that. Unchanged: it has the
// ETag still, and of the root only the time is known, if the answer says it. Errors: mirrorindex.ErrFormat, RefusedError, of the network.
func (c *Client) Root(ctx context.Context, etag string) (root mirrorindex.Root, now string, unchanged bool, err error) {
	r := request{method: http.MethodGet, path: mirrorindex.RootPath, header: map[string]string{}}
	if etag != "" {
		r.header["If-None-Match"] = etag
	}
	err = c.do(ctx, r, func(answer *http.Response) error {
		now = answer.Header.Get("ETag")
		root = mirrorindex.Root{}
		if unchanged = answer.StatusCode == http.StatusNotModified; unchanged {
			root.Now, _ = http.ParseTime(answer.Header.Get("Date")) // without it the time stays zero
			return nil
		}
		refusal := bound.Error{List: bound.Root, Object: c.cfg.URL.Redacted() + mirrorindex.RootPath, Step: askOwner}
		came := struct {
			mirrorindex.Root
			Instruments rootLines `json:"instruments"`
		}{Instruments: rootLines{kept: bound.List{Limits: bound.Limits{Entries: maxInstruments}, Entry: "instruments", Refusal: refusal}}}
		if err := json.NewDecoder(bound.Reader(answer.Body, maxRoot, refusal)).Decode(&came); bound.Is(err) {
			return err
		} else if err != nil {
			return fmt.Errorf("%s%s is not the mirror index of a Substorm: %w", c.cfg.URL.Redacted(), mirrorindex.RootPath, malformed(err))
		}
		root, root.Instruments = came.Root, came.Instruments.lines
		if err := root.Check(); err != nil {
			return fmt.Errorf("%s%s: %w", c.cfg.URL.Redacted(), mirrorindex.RootPath, malformed(err))
		}
		c.sends.Store(int64(root.Bundles))
		return nil
	})
	return root, now, unchanged, err
}

// rootLines are the instruments of a root. A list that exceeds the limit is refused before it takes memory.
type rootLines struct {
	lines []mirrorindex.RootLine
	kept  bound.List
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *rootLines) UnmarshalJSON(text []byte) error {
	r.lines = nil
	if string(text) == "null" {
		return nil
	}
	in := json.NewDecoder(bytes.NewReader(text))
	if begin, err := in.Token(); err != nil || begin != json.Delim('[') {
		return errors.Join(errors.New("its instruments are not a list"), err)
	}
	for in.More() {
		if err := r.kept.Add(1, 0); err != nil {
			return err
		}
		var line mirrorindex.RootLine
		if err := in.Decode(&line); err != nil {
			return err
		}
		r.lines = append(r.lines, line)
	}
	return nil
}

// Days returns what is answered to each question, the first line of each being that with
// the Instrument. Errors: RefusedError, ErrBroken, of the network.
func (c *Client) Days(ctx context.Context, questions []mirrorindex.DaysQuestion) ([][]mirrorindex.DaysLine, error) {
	var all [][]mirrorindex.DaysLine
	var kept, lines *bound.List
	begin := func() {
		all, kept = nil, c.kept(bound.Days, mirrorindex.DaysPath, cmp.Or(c.cfg.Kept.Days, keptDays), "months and days")
	}
	err := post(ctx, c, mirrorindex.DaysPath, questions, bound.Days, begin, func(line mirrorindex.DaysLine, size int) (bool, error) {
		if err := kept.Add(1, daysLineBytes+int64(size)); err != nil {
			return false, err
		}
		switch {
		case line.End:
			return true, nil
		case line.Instrument != "":
			if len(all) == len(questions) || line.Instrument != questions[len(all)].Instrument {
				return false, malformed(fmt.Errorf("%w: it is about instrument %.40q, which was not requested", ErrBroken, line.Instrument))
			}
			all = append(all, nil)
			lines = c.kept(bound.Days, mirrorindex.DaysPath, 0, "months and days of instrument "+line.Instrument)
			lines.Entries = maxDaysLines
		case len(all) == 0:
			return false, malformed(fmt.Errorf("%w: it does not begin with an instrument", ErrBroken))
		default:
			if err := line.Check(); err != nil {
				return false, malformed(fmt.Errorf("%s%s: %w", c.cfg.URL.Redacted(), mirrorindex.DaysPath, err))
			}
			if err := lines.Add(1, 0); err != nil {
				return false, err
			}
		}
		all[len(all)-1] = append(all[len(all)-1], line)
		return false, nil
	})
	if err == nil && len(all) != len(questions) {
		err = malformed(fmt.Errorf("%w: it answers %d of %d questions", ErrBroken, len(all), len(questions)))
	}
	return all, err
}

// List is the answer about one day.
type List struct {
	Head    mirrorindex.ListLine
	Entries []mirrorindex.Entry
	// Untaken are listed objects that no mirror takes (mirrorindex.ErrTime).
	Untaken []Untaken
}

// Untaken is an object that is listed and cannot be taken.
type Untaken struct {
	Path string
	Err  error
}

// Lists returns what is answered to each question. If the answers take more memory than allowed, it returns those to the first questions,
// at least one: the others are to be asked again. Errors: as Days.
func (c *Client) Lists(ctx context.Context, questions []mirrorindex.ListQuestion) ([]List, error) {
	var all []List
	var kept, entries *bound.List
	begin := func() {
		all, kept = nil, c.kept(bound.Lists, mirrorindex.ListsPath, cmp.Or(c.cfg.Kept.Lists, keptLists), "objects of a day")
	}
	err := post(ctx, c, mirrorindex.ListsPath, questions, bound.Lists, begin, func(line mirrorindex.ListLine, _ int) (bool, error) {
		switch {
		case line.End:
			return true, nil
		case line.Instrument != "":
			if q := len(all); q == len(questions) || line.Instrument != questions[q].Instrument || line.Day != questions[q].Day {
				return false, malformed(fmt.Errorf("%w: it is about %.40q and %.10q, which were not requested", ErrBroken, line.Instrument, line.Day))
			}
			all = append(all, List{Head: line})
			entries = c.kept(bound.Lists, mirrorindex.ListsPath, 0, fmt.Sprintf("objects of instrument %s on %s", line.Instrument, line.Day))
			entries.Entries = maxEntries
		case len(all) == 0 || line.Entry == nil:
			return false, malformed(fmt.Errorf("%w: it does not begin with an instrument", ErrBroken))
		default:
			untaken := line.Check()
			if untaken != nil && !errors.Is(untaken, mirrorindex.ErrTime) {
				return false, malformed(fmt.Errorf("%s%s: %w", c.cfg.URL.Redacted(), mirrorindex.ListsPath, untaken))
			}
			if err := entries.Add(1, 0); err != nil {
				return false, err
			}
			last := &all[len(all)-1]
			if err := kept.Add(1, entryBytes(line.Entry)); err != nil && len(all) > 1 {
				all = all[:len(all)-1]
				return true, errRest
			} else if err != nil {
				return false, err
			}
			if untaken != nil {
				last.Untaken = append(last.Untaken, Untaken{line.Path, untaken})
				return false, nil
			}
			last.Entries = append(last.Entries, *line.Entry)
		}
		return false, nil
	})
	if errors.Is(err, errRest) {
		return all, nil
	}
	if err == nil && len(all) != len(questions) {
		err = malformed(fmt.Errorf("%w: it answers %d of %d questions", ErrBroken, len(all), len(questions)))
	}
	return all, err
}

// errRest ends an answer after as much was read as may be kept.
var errRest = errors.New("the rest is asked for again")

// kept counts what is kept of an answer.
func (c *Client) kept(list, path string, bytes int64, entries string) *bound.List {
	return &bound.List{Limits: bound.Limits{Bytes: bytes}, Entry: entries, Refusal: bound.Error{List: list, Object: c.cfg.URL.Redacted() + path, Step: askOwner}}
}

// daysLineBytes and entryFixed are what a line about a day, and an object of a list, take beside their texts, and timeBytes a time that may be absent.
var (
	daysLineBytes = int64(reflect.TypeFor[mirrorindex.DaysLine]().Size())
	entryFixed    = int64(reflect.TypeFor[mirrorindex.Entry]().Size())
	timeBytes     = int64(reflect.TypeFor[time.Time]().Size())
)

// entryBytes is what an object of a list takes of memory.
func entryBytes(e *mirrorindex.Entry) int64 {
	n := entryFixed + int64(len(e.Path)+len(e.State)+len(e.Reason)+len(e.Cause)+len(e.ID)+len(e.MediaType)+len(e.TimeSource)+len(e.Completeness))
	for _, t := range []*time.Time{e.RetractedAt, e.RestoredAt, e.ObservedFrom, e.ObservedTo} {
		if t != nil {
			n += timeBytes
		}
	}
	return n
}

// Confirm says what is here, and returns how many of the days that the other side waits for are not what it has by now. Errors: as Days.
func (c *Client) Confirm(ctx context.Context, lines []mirrorindex.ConfirmLine) (differ int, err error) {
	asked := 0
	for i := range lines {
		if lines[i].Have != nil {
			asked++
		}
	}
	confirmed := 0
	err = post(ctx, c, mirrorindex.ConfirmedPath, lines, bound.Lists, func() { confirmed = 0 }, func(line mirrorindex.ConfirmedLine, _ int) (bool, error) {
		if line.Confirmed || line.Unawaited {
			confirmed++
		}
		return line.End, nil
	})
	return max(0, asked-confirmed), err
}

// post asks questions and takes the lines of the answer, until take says that one is the
// last. Begin is called before the first one, each time that it is asked.
func post[Q, L any](ctx context.Context, c *Client, path string, questions []Q, list string, begin func(), take func(line L, size int) (last bool, err error)) error {
	return c.do(ctx, request{method: http.MethodPost, path: path, body: body(questions), header: map[string]string{"Content-Type": mirrorindex.MediaLines}}, func(answer *http.Response) error {
		begin()
		refusal := bound.Error{List: list, Object: c.cfg.URL.Redacted() + path, Step: askOwner}
		in := bufio.NewReaderSize(bound.Reader(answer.Body, maxAnswer, refusal), maxLine)
		for {
			text, err := in.ReadSlice('\n')
			if bound.Is(err) || errors.Is(err, errInflated) { // as it will be when it is asked again
				return err
			}
			if err != nil {
				return malformed(fmt.Errorf("%w: %w", ErrBroken, noEnd(err)))
			}
			var line L
			if err := json.Unmarshal(text, &line); err != nil {
				return malformedError{fmt.Errorf("%w: %w", ErrBroken, err)}
			}
			if last, err := take(line, len(text)); last || err != nil {
				return err
			}
		}
	})
}

// errNoEnd: all of an answer came, and it does not say that it ends.
var errNoEnd = errors.New("its end is missing")

// noEnd is an error of reading, where the end of the answer is one.
func noEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return errNoEnd
	}
	return err
}

// body writes questions as JSON lines.
func body[Q any](questions []Q) []byte {
	var lines bytes.Buffer
	for _, q := range questions {
		_ = json.NewEncoder(&lines).Encode(q) // it is text and numbers
	}
	return lines.Bytes()
}
