// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"errors"
	"fmt"
)

// Versions of the protocol that are spoken: rsync 3.0.0 (2008) introduced 30.
const (
	oldestProtocol = 30
	newestProtocol = 32
)

// Indexes that are no file's.
const (
	ndxDone     = -1
	ndxListEnd  = -2 // there are no further file lists
	ndxDeleted  = -3 // what the client deleted follows
	ndxListBase = -101
)

// Kinds of frames. Frames that a client may send and that are meaningless to a sender are skipped.
const (
	frameBase = 7

	frameData      = 0
	frameNotSent   = 1 // an error after which a client ends with 23
	frameError     = 3
	frameWarning   = 4
	frameIOError   = 22
	frameIOTimeout = 33
	frameNoop      = 42
	frameErrorExit = 86
	frameNoSend    = 102

	maxFrame = 1<<24 - 1
)

// Flags of an entry of the file list.
const (
	entryTop         = 1 << 0
	entrySameMode    = 1 << 1
	entryExtended    = 1 << 2
	entrySameUser    = 1 << 3
	entrySameGroup   = 1 << 4
	entrySameName    = 1 << 5
	entryLongName    = 1 << 6
	entrySameTime    = 1 << 7
	entryNoContent   = 1 << 8  // of a directory: its content is not in the list
	entryListFailed  = 1 << 12 // of the end: the list lacks something
	entryNanoseconds = 1 << 13
)

// Flags of what a client asks about an entry.
const (
	itemBasisFollows = 1 << 11
	itemNameFollows  = 1 << 12
	itemTransfer     = 1 << 15
)

// Flags by which both sides agree on what they can do.
const (
	compatRecurse       = 1 << 0
	compatSafeList      = 1 << 3
	compatSeedFirst     = 1 << 5
	compatInplace       = 1 << 6
	compatVarintEntries = 1 << 7
)

// Errors that a client gets in the file list and at the end.
const (
	failedGeneral  = 1 << 0
	failedVanished = 1 << 1
)

// Codes with which a client exits.
const (
	exitSyntax      = 1
	exitUnsupported = 4
	exitStart       = 5
	exitPartial     = 23
)

// errMalformed: a client sent what makes no sense in the protocol.
var errMalformed = errors.New("the client violates the rsync protocol")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// refusal is the client's answer in place of what it asks for.
type refusal struct {
	exit int
	text string
}

func (r *refusal) Error() string { return r.text }

func refuse(exit int, format string, args ...any) error {
	return &refusal{exit, fmt.Sprintf(format, args...)}
}
