// SPDX-License-Identifier: Apache-2.0

// Package queue keeps on a disk what has no receipt yet.
//
// A queue is a folder that people can read without us:
//
//	format                  the version of what is described here
//	id                      tells it from other queues; drawn at random
//	watched                 the folders that were watched: those of another one are confirmed first, where they are mixed
//	lock                    held by the one process that uses the queue
//	objects/<entry>         what is owed: a file of its own for each object, its bytes and nothing else
//	refused/<entry>         what the gateway will never take, see the journal for why
//	damaged/<entry>         what has other bytes than were queued
//	names/<entry>           the name over HTTP, where it does not fit the entry's
//	incoming/<number>       what is being copied; emptied at start
//	journal                 what was taken from watched folders, how versions of rewritten files are called, and the day's bytes
//
// An entry is named <13-digit ms>-<8 hex number>-<16 hex of the SHA-256>-<name>, so that
// a listing is in the order of time. A file that lies in objects is owed, and nothing
// else says so: it is renamed into the folder once its bytes are synced, and removed
// after its receipt. A kill or a power cut between the two means that the object is sent
// again, never that it is lost.
package queue
