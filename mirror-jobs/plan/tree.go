// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/substorm/substorm/internal/wire"
)

// File is a file in a folder of another side that has no manifests.
type File struct {
	// Path below the folder that is pulled.
	Path string
	// Size in bytes, negative if it is unknown.
	Size int64
	// Mark changes with the file, as its size and time do; empty where the other side tells neither: then it is asked whether
	// the file changed.
	Mark string
}

// Fetched is a file when it was fetched.
type Fetched struct {
	// Mark as in File.
	Mark string
	// Instrument to which it was brought.
	Instrument string
}

// TreeFolder is what is to be done about a folder.
type TreeFolder struct {
	// Fetch are the indexes of files that may have changed, and Instruments to which each of them belongs.
	Fetch       []int
	Instruments []string
	// Same are how many are as they were when they were fetched.
	Same int
	// Quarantined are the indexes of those that belong to no Instrument: they stay where they are until a pattern names them.
	Quarantined []int
}

// Tree compares the files of a folder with what they were when they were fetched. One that belongs to another Instrument since, as paths
// say, is fetched for that.
func Tree(files []File, before map[string]Fetched, paths []wire.MirrorPath) (t TreeFolder) {
	for i, f := range files {
		instrument, is := InstrumentOf(f.Path, paths)
		if !is {
			t.Quarantined = append(t.Quarantined, i)
			continue
		}
		if was, fetched := before[f.Path]; fetched && was.Mark != "" && was == (Fetched{f.Mark, instrument}) {
			t.Same++
			continue
		}
		t.Fetch, t.Instruments = append(t.Fetch, i), append(t.Instruments, instrument)
	}
	return t
}

// InstrumentOf returns the Instrument whose pattern fits a path: the first that does.
func InstrumentOf(path string, paths []wire.MirrorPath) (instrument string, is bool) {
	for _, p := range paths {
		if fits, err := doublestar.Match(literal.Replace(p.Pattern), path); err == nil && fits {
			return p.Instrument, true
		}
	}
	return "", false
}

// literal takes the meaning from what the library knows beside * ? and **.
var literal = strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`, `{`, `\{`, `}`, `\}`)
