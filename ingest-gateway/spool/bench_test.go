// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// The log beside a file and a sync for each object, and beside the disk: one
// large file that is synced each maxBatch.
func BenchmarkSpool(b *testing.B) {
	for _, size := range []int{1 << 10, 32 << 10, 1 << 20} {
		for _, senders := range []int{1, 64} {
			name := fmt.Sprintf("%dKiB/%d", size>>10, senders)
			b.Run("log/"+name, func(b *testing.B) { benchmarkLog(b, size, senders) })
			b.Run("files/"+name, func(b *testing.B) { benchmarkFiles(b, size, senders) })
		}
	}
	b.Run("disk", benchmarkDisk)
}

// together runs f for each of n in so many goroutines.
func together(b *testing.B, size, senders int, f func(i int64) error) {
	b.SetBytes(int64(size))
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range senders {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := f(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func benchmarkLog(b *testing.B, size, senders int) {
	s := open(b, Config{Dir: b.TempDir(), Size: 1 << 40})
	data := bytesOf(1, size)
	n := noticeOf(data, received)
	together(b, size, senders, func(int64) error { return s.Object(n, bytes.NewReader(data), int64(size)) })
	st := s.Stats()
	b.ReportMetric(float64(st.Records)/float64(max(st.Batches, 1)), "records/sync")
}

func benchmarkFiles(b *testing.B, size, senders int) {
	dir := b.TempDir()
	data := bytesOf(1, size)
	together(b, size, senders, func(i int64) error {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			return err
		}
		if _, err := f.Write(data); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		return f.Close()
	})
}

func benchmarkDisk(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "disk"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	data := bytesOf(1, 1<<20)
	b.SetBytes(int64(len(data)))
	for i := range b.N {
		if _, err := f.Write(data); err != nil {
			b.Fatal(err)
		}
		if i%(maxBatch>>20) == 0 {
			if err := unix.Fdatasync(int(f.Fd())); err != nil {
				b.Fatal(err)
			}
		}
	}
}
