// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/bound"
	"github.com/substorm/substorm/mirror-jobs/push"
)

// Limits are those of a tree of another side. The zero value of a field is its default.
type Limits struct {
	// Folders is how many folders a run reads, and Depth how deep they lie at most: a server may invent them without end.
	Folders, Depth int
	// Files is how many files of a folder are kept.
	Files int
	// Bytes is how much memory the paths and marks of a folder's files take, and as much those of the folders that are known and not
	// read yet. Up to foldersAtOnce+2 folders are in memory at once.
	Bytes int64
}

// The defaults of Limits. 200,000 files have 168 bytes each: a path of 100 characters, and entryBytes.
const (
	defaultFolders, defaultDepth, defaultFiles = 200_000, 32, 200_000
	defaultBytes                               = 32 << 20
	// entryBytes are what a file or a folder takes beside its texts.
	entryBytes = 68
)

// OrDefault has the defaults for what is zero.
func (l Limits) OrDefault() Limits {
	return Limits{cmp.Or(l.Folders, defaultFolders), cmp.Or(l.Depth, defaultDepth), cmp.Or(l.Files, defaultFiles), cmp.Or(l.Bytes, defaultBytes)}
}

// Size is how many bytes of memory an entry takes with its texts.
func Size(texts ...string) int64 {
	n := int64(entryBytes)
	for _, t := range texts {
		n += int64(len(t))
	}
	return n
}

const (
	narrower  = "make a MirrorPartner for each of the folders that are wanted"
	fewerHere = "ask its administrator to spread the files over several folders"
)

// FilesOf counts the files of a folder.
func (l Limits) FilesOf(folder string) *bound.List {
	return &bound.List{Limits: bound.Limits{Entries: l.Files, Bytes: l.Bytes}, Entry: "files",
		Refusal: bound.Error{List: bound.Folder, Object: fmt.Sprintf("folder %q of the other side", folder), Step: fewerHere}}
}

// FoldersOf counts the folders of a tree that is named so.
func (l Limits) FoldersOf(tree string) *bound.List {
	return &bound.List{Limits: bound.Limits{Entries: l.Folders, Bytes: l.Bytes}, Entry: "folders",
		Refusal: bound.Error{List: bound.Folders, Object: tree, Step: narrower}}
}

// CheckDepth returns a *bound.Error for the path of a folder that lies too deep.
func (l Limits) CheckDepth(folder string) error {
	if folder == "" || strings.Count(folder, "/") < l.Depth {
		return nil
	}
	return &bound.Error{List: bound.Depth, Object: fmt.Sprintf("folder %q of the other side", folder), Limit: fmt.Sprintf("%d folders within each other", l.Depth),
		Step: "set the path of the MirrorPartner to a folder below, or ask its administrator about links that lead in circles"}
}

// Refusals are the lists of a tree that were refused. The zero value has none.
type Refusals struct {
	first map[string]error
	names []string
	count map[string]int
}

// Add notes a refusal, which is a *bound.Error.
func (r *Refusals) Add(err error) {
	if r.first == nil {
		r.first, r.count = map[string]error{}, map[string]int{}
	}
	for _, list := range bound.Of(err) {
		if r.count[list]++; r.first[list] == nil {
			r.first[list], r.names = err, append(r.names, list)
		}
	}
}

// Err is ErrUnlisted in a push.Problem with the first refusal of each kind; nil if there are none.
func (r *Refusals) Err() error {
	if len(r.names) == 0 {
		return nil
	}
	var all []error
	for _, list := range r.names {
		err := r.first[list]
		if more := r.count[list] - 1; more > 0 {
			err = fmt.Errorf("%w (and %d more)", err, more)
		}
		all = append(all, err)
	}
	return &push.Problem{Reason: wire.MirrorReasonProtocol, Answered: true, Err: fmt.Errorf("%w: %w", ErrUnlisted, errors.Join(all...))}
}
