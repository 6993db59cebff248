// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"math/rand/v2"
	"slices"
	"strings"
)

const (
	zstd  = "zstd"
	zlibx = "zlibx"
	zlib  = "zlib"
	// compressions are the offered ones, the cheapest first.
	compressions = zstd + " " + zlibx + " " + zlib
	// maxChoices is how long a client's list of names may be.
	maxChoices = 256
)

// agreed is what both sides do, as far as it depends on the client.
type agreed struct {
	// recurse: a file list is sent for each directory, while files are sent already.
	recurse bool
	// safeList: the end of a list can say that it lacks something. Varint: flags of its
	// entries are a number of any length.
	safeList, varint bool
	// seedFirst says where the seed stands in the sum of a block.
	seedFirst bool
	seed      int32
	// transfer sums up what is sent, and list what is listed.
	transfer, list checksum
	// compress is "" where nothing is compressed.
	compress string
}

// agree finds out what both sides can do. Errors: those of the connection; a refusal is
// to be sent when it has returned, since a client reads no words before.
func (s *session) agree(o *options) (a agreed, refused, err error) {
	flags := int32(0)
	set := func(can bool, flag int32) bool {
		if can {
			flags |= flag
		}
		return can
	}
	a.recurse = set(o.recurse && !o.whole && o.has("i"), compatRecurse)
	a.safeList = set(o.has("f"), compatSafeList) || s.protocol >= 31
	a.seedFirst = set(o.has("C"), compatSeedFirst)
	set(o.has("I"), compatInplace)
	a.varint = set(o.has("v"), compatVarintEntries)
	s.out.varint(flags)
	names, compress := defaultChecksum, zlib
	if a.varint {
		if names, compress, err = s.choose(o); err != nil {
			return a, nil, err
		}
	}
	if a.seed = o.seed; !o.hasSeed {
		a.seed = rand.Int32()
	}
	s.out.int(a.seed)
	if o.checksumName != "" {
		names = o.checksumName
	}
	if o.compressChoice != "" {
		compress = o.compressChoice
	}
	if refused = a.sums(names); refused == nil && o.compress {
		refused = a.compression(compress)
	}
	return a, refused, s.out.flush()
}

// choose sends the names of what is known here, where a client has not said what it wants,
// and reads the client's: the first of its names that is known here is what is done.
func (s *session) choose(o *options) (checksum, compress string, err error) {
	sums, compression := o.checksumName == "", o.compress && o.compressChoice == ""
	if sums {
		s.out.vtext(checksumNames())
	}
	if compression {
		s.out.vtext(compressions)
	}
	if err := s.out.flush(); err != nil {
		return "", "", err
	}
	first := func(known string) (string, error) {
		theirs, err := s.in.text(maxChoices)
		ours := strings.Fields(known)
		for _, name := range strings.Fields(theirs) {
			if slices.Contains(ours, name) {
				return name, err
			}
		}
		return theirs, err
	}
	if sums {
		if checksum, err = first(checksumNames()); err != nil {
			return "", "", err
		}
	}
	if compression {
		compress, err = first(compressions)
	}
	return checksum, compress, err
}

// sums takes the names of one checksum, or of two: the checksum of the transfer and the checksum of
// the file list.
func (a *agreed) sums(names string) error {
	transfer, list, two := strings.Cut(names, ",")
	if !two {
		list = transfer
	}
	find := func(name string) (checksum, error) {
		if name == "auto" {
			name = defaultChecksum
		}
		c, known := findChecksum(name)
		if !known {
			return c, refuse(exitUnsupported, "the checksum %q is not known here: choose one of %s", name, checksumNames())
		}
		return c, nil
	}
	var err error
	if a.transfer, err = find(transfer); err != nil {
		return err
	}
	a.list, err = find(list)
	return err
}

func (a *agreed) compression(name string) error {
	if name == "auto" {
		name = zlib
	}
	if !slices.Contains(strings.Fields(compressions), name) {
		return refuse(exitUnsupported, "the compression %q is not known here: choose one of %s", name, compressions)
	}
	a.compress = name
	return nil
}
