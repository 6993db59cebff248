// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// The folder .substorm/<instrument>/ has days.json, the tags, and for each day <day>.jsonl.zst: a
// line with the format, and one for each object (plan.Line).

// ErrUnreadable: a list is damaged, as after a power failure: its content must be found out again.
var ErrUnreadable = errors.New("the list of a day cannot be read")

type head struct {
	Format     int      `json:"format"`
	Instrument string   `json:"instrument"`
	Day        wire.Day `json:"day"`
}

func listFile(instrument string, day wire.Day) string {
	return filepath.Join(own, instrument, string(day)+".jsonl.zst")
}

func daysFile(instrument string) string { return filepath.Join(own, instrument, "days.json") }

// Known returns what is known of an instrument, without the tags that were noted under another selection.
func (f *Folder) Known(instrument string) (plan.Known, error) {
	var known plan.Known
	err := f.read(daysFile(instrument), &known)
	var damaged *json.SyntaxError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &damaged) {
		known = plan.Known{} // everything is compared again
		known.Days, err = f.heldDays(instrument)
	}
	if known.Months == nil {
		known.Months = map[string]string{}
	}
	if known.Days == nil {
		known.Days = map[wire.Day]plan.KnownDay{}
	}
	if selects := f.State().Selects; known.Selects != selects {
		known.Forget()
		known.Selects = selects
	}
	return known, err
}

// heldDays returns what the lists of an instrument's days say that is here.
func (f *Folder) heldDays(instrument string) (map[wire.Day]plan.KnownDay, error) {
	days, err := f.Days(instrument)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	held := map[wire.Day]plan.KnownDay{}
	for _, day := range days {
		lines, err := f.Lines(instrument, day)
		if errors.Is(err, ErrUnreadable) {
			held[day] = plan.KnownDay{Objects: 1} // some: the run that looks at the day counts them
			continue
		}
		if err != nil {
			return nil, err
		}
		entry := plan.KnownDay{}
		entry.Objects, entry.Bytes = plan.Held(lines)
		held[day] = entry
	}
	return held, err
}

// Lost returns the days of an instrument that have known objects here but no list, ascending: the list was removed. It reads the names in
// one folder.
func (f *Folder) Lost(instrument string, known plan.Known) (days []wire.Day, err error) {
	there, err := f.Days(instrument)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	lists := make(map[wire.Day]bool, len(there))
	for _, day := range there {
		lists[day] = true
	}
	for day, was := range known.Days {
		if was.Objects > 0 && !lists[day] {
			days = append(days, day)
		}
	}
	slices.Sort(days)
	return days, nil
}

// Forgotten returns the instruments that were acted upon in full but whose tags are lost, sorted: nothing is known of their days.
func (f *Folder) Forgotten() (names []string, err error) {
	for name, tag := range f.State().Instruments {
		if tag == "" {
			continue
		}
		switch _, err := f.root.Stat(daysFile(name)); {
		case errors.Is(err, fs.ErrNotExist):
			names = append(names, name)
		case err != nil:
			return nil, err
		}
	}
	slices.Sort(names)
	return names, nil
}

// SetKnown writes what is known of an instrument.
func (f *Folder) SetKnown(instrument string, known plan.Known) error {
	if err := f.mkdir(filepath.Join(own, instrument)); err != nil {
		return err
	}
	return f.write(daysFile(instrument), known)
}

// Lines returns what is known of a day; no lines if nothing is. Errors: ErrUnreadable, of the file system.
func (f *Folder) Lines(instrument string, day wire.Day) ([]plan.Line, error) {
	name := listFile(instrument, day)
	file, err := f.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	z, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	in := json.NewDecoder(bufio.NewReader(z))
	var h head
	if err := in.Decode(&h); err != nil || h.Format != format {
		return nil, fmt.Errorf("%w: %s: format %d: %w", ErrUnreadable, name, h.Format, err)
	}
	var all []plan.Line
	for {
		var l plan.Line
		switch err := in.Decode(&l); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("%w: %s: %w", ErrUnreadable, name, err)
		}
		all = append(all, l)
	}
}

// SetLines writes what is known of a day. Objects that the lines say are held must be on the disk.
func (f *Folder) SetLines(instrument string, day wire.Day, lines []plan.Line) error {
	if err := f.mkdir(filepath.Join(own, instrument)); err != nil {
		return err
	}
	var text bytes.Buffer
	z, err := zstd.NewWriter(&text, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return err
	}
	out := json.NewEncoder(z)
	out.SetEscapeHTML(false)
	if err := out.Encode(head{format, instrument, day}); err != nil {
		return err
	}
	for i := range lines {
		if err := out.Encode(&lines[i]); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.replace(listFile(instrument, day), text.Bytes())
}

// Days returns the days with lists of an instrument, ascending.
func (f *Folder) Days(instrument string) (days []wire.Day, err error) {
	entries, err := fs.ReadDir(f.root.FS(), filepath.Join(own, instrument))
	for _, e := range entries {
		if day, is := bytes.CutSuffix([]byte(e.Name()), []byte(".jsonl.zst")); is {
			days = append(days, wire.Day(day))
		}
	}
	return days, err
}

// Instruments returns the instruments that have lists.
func (f *Folder) Instruments() (names []string, err error) {
	entries, err := fs.ReadDir(f.root.FS(), own)
	for _, e := range entries {
		if e.IsDir() && e.Name() != partsName {
			names = append(names, e.Name())
		}
	}
	return names, err
}
