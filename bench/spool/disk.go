// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// maxBatch is how many bytes one sync covers at most, as in the spool.
const maxBatch = 8 << 20

// memory holds what is written: as what was received, it is in no processor's cache.
const memory = 64 << 20

// groupCommit writes objects of a size into one file for some time, each of so
// many writers one after the other: whatever came meanwhile is written together
// and synced once. It returns bytes a second. No record, no checksum, no
// network: the disk itself.
func groupCommit(dir string, size, writers int, duration time.Duration) (float64, error) {
	f, err := os.Create(filepath.Join(dir, "disk"))
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	data := make([]byte, max(memory, size))
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	queue := make(chan chan error, writers)
	written := make(chan error, 1)
	go func() { written <- commitAll(f, queue, data, size) }()
	var senders sync.WaitGroup
	var objects atomic.Int64
	begin := time.Now()
	for range writers {
		senders.Go(func() {
			settled := make(chan error, 1)
			for time.Since(begin) < duration {
				queue <- settled
				if <-settled != nil {
					return
				}
				objects.Add(1)
			}
		})
	}
	senders.Wait()
	took := time.Since(begin)
	close(queue)
	return float64(objects.Load()) * float64(size) / took.Seconds(), <-written
}

// commitAll writes an object for each of the queue, and answers after the sync.
func commitAll(f *os.File, queue <-chan chan error, data []byte, size int) error {
	next := 0
	var failed error
	for first := range queue {
		batch := []chan error{first}
		for len(batch)*size < maxBatch && len(queue) > 0 {
			batch = append(batch, <-queue)
		}
		for range batch {
			if next+size > len(data) {
				next = 0
			}
			next += size
			if _, err := f.Write(data[next-size : next]); err != nil {
				failed = errors.Join(failed, err)
			}
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			failed = errors.Join(failed, err)
		}
		for _, b := range batch {
			b <- failed
		}
	}
	return failed
}
