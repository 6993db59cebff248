// SPDX-License-Identifier: Apache-2.0

//go:build linux

package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/substorm/substorm/internal/progress"
)

const (
	// Bytes that are left: with less than leastFree nothing is measured, and soon nothing is received; enoughFree are some days of a station.
	leastFree  = 64 << 20
	enoughFree = 1 << 30
	// fewFiles: an object is a file or two.
	fewFiles = 10_000
	// tooFast is a sync that no disk makes: one with a capacitor takes 30 µs and more.
	tooFast = 15 * time.Microsecond
	// tooSlow is a sync that senders notice, who wait for their receipts.
	tooSlow = 200 * time.Millisecond
)

// disk is what is known of the one with the data folder.
type disk struct {
	filesystem
	speed speed
	// unmeasured is why there is no speed.
	unmeasured error
	// err is why nothing is known.
	err error
}

// Reasons why a disk cannot be measured.
var (
	errNoFolder = errors.New("the data folder cannot be used")
	errNoSpace  = errors.New("there is too little space")
)

// disk looks at the disk and measures it.
func (f folder) disk(ctx context.Context, shown *progress.Progress) disk {
	var d disk
	if d.filesystem, d.err = filesystemOf(f.at); d.err != nil {
		return d
	}
	switch {
	case f.check.Result == Failed:
		d.unmeasured = errNoFolder
	case d.free < leastFree:
		d.unmeasured = errNoSpace
	default:
		d.speed, d.unmeasured = measure(ctx, f.at, shown)
	}
	return d
}

// checks are those of space and of speed.
func (d disk) checks() []Check {
	if d.err != nil {
		return []Check{failed("space", "name a data folder that can be read with --data-dir", "%v", d.err)}
	}
	return []Check{d.space(), d.sync()}
}

func (d disk) space() Check {
	const check = "space"
	found := fmt.Sprintf("%s of %s are left", humanize.IBytes(d.free), humanize.IBytes(d.size))
	if d.files > 0 {
		found += fmt.Sprintf(", and %s of %s files", humanize.Comma(int64(d.freeFiles)), humanize.Comma(int64(d.files)))
	}
	found += ", on " + d.name
	switch {
	case d.free < leastFree:
		return failed(check, "free some, or move the data folder to a larger disk: what does not fit is refused", "%s", found)
	case d.files > 0 && d.freeFiles == 0:
		return failed(check, "remove files of others, or make the file system anew with more inodes (mkfs.ext4 -i): each object takes one", "%s", found)
	case d.free < enoughFree:
		return warning(check, "free some, or have less kept (spec.archive.expiry of Instruments): when it is full, what arrives is refused", "%s", found)
	case d.files > 0 && d.freeFiles < fewFiles:
		return warning(check, "remove files of others, or make the file system anew with more inodes (mkfs.ext4 -i): each object takes one", "%s", found)
	}
	return fine(check, "%s", found)
}

func (d disk) sync() Check {
	const check = "sync"
	switch {
	case errors.Is(d.unmeasured, errNoSpace):
		return warning(check, "make space and run substorm doctor again", "not measured: %v", d.unmeasured)
	case errors.Is(d.unmeasured, errNoFolder):
		return warning(check, "see data folder", "not measured: %v", d.unmeasured)
	case d.unmeasured != nil:
		return failed(check, "look what dmesg says of the disk, and quota of its users: nothing is received where nothing can be kept", "%v", d.unmeasured)
	}
	switch {
	case d.kind == inMemory:
		return warning(check, "see power cut", "%s, in memory", d.speed)
	case d.kind == ofContainer:
		return warning(check, "mount a volume for the data folder: this one goes with its container", "%s, in a container's own layer", d.speed)
	case d.unsafe != "":
		return warning(check, "mount it without "+d.unsafe, "%s, mounted with %s: a sync does not wait for the disk", d.speed, d.unsafe)
	case d.speed.median() < tooFast:
		return warning(check, "no disk is so fast: have the virtual machine's disk (cache=unsafe) or the controller wait for its syncs", "%s", d.speed)
	case d.speed.median() > tooSlow:
		return warning(check, "each receipt waits for a sync: take an SSD, or a card made for databases (A2), and look what else writes", "%s", d.speed)
	}
	return fine(check, "%s", d.speed)
}
