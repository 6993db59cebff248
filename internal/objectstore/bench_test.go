// SPDX-License-Identifier: Apache-2.0

//go:build linux

package objectstore_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
)

// BenchmarkPut stores objects in a folder beside the same in MinIO, both on the disk of the temporary folder, by sixteen writers at once,
// in five rounds that begin with another of the two each time. It prints objects a second, and the median of the rounds' ratios.
//
//	go test ./internal/objectstore -run - -bench Put -benchtime 1x
func BenchmarkPut(b *testing.B) {
	minio := testenv.MinIO(b, testenv.MinIOOptions{})
	stores := []objectstore.Store{inFolder(b, b.TempDir()), minio.Bucket(b, "archive")}
	for _, size := range []int{1500, 32 << 10, 8 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			for range b.N {
				var ratios []float64
				var rates [2][]float64
				for round := range 5 {
					var rate [2]float64
					for i := range 2 {
						one := (round + i) % 2
						rate[one] = putFor(b, stores[one], fmt.Sprintf("o/bench/%d/%d", size, round), size, 2*time.Second)
						rates[one] = append(rates[one], rate[one])
					}
					ratios = append(ratios, rate[0]/rate[1])
				}
				b.ReportMetric(median(ratios), "folder/MinIO")
				b.ReportMetric(median(rates[0]), "folder/s")
				b.ReportMetric(median(rates[1]), "MinIO/s")
			}
		})
	}
	b.Logf("sizes in bytes; resident memory of this process, which has the folder and MinIO's client: %d MiB", resident(b, os.Getpid())>>20)
}

const benchWriters = 16

// putFor has writers store objects for some time, and returns how many a second.
func putFor(b *testing.B, store objectstore.Store, prefix string, size int, window time.Duration) float64 {
	body := make([]byte, size)
	_, _ = rand.Read(body)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var stored atomic.Int64
	var all sync.WaitGroup
	begin := time.Now()
	for writer := range benchWriters {
		all.Go(func() {
			for i := 0; time.Since(begin) < window; i++ {
				key := fmt.Sprintf("%s/%d-%d", prefix, writer, i)
				err := store.Put(ctx, key, bytes.NewReader(body), int64(size), objectstore.PutOptions{CreateOnly: true, Metadata: map[string]string{"Number": fmt.Sprint(i)}})
				if err != nil {
					b.Error(err)
					return
				}
				stored.Add(1)
			}
		})
	}
	all.Wait()
	return float64(stored.Load()) / time.Since(begin).Seconds()
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// resident is the memory of a process, in bytes.
func resident(b *testing.B, pid int) (bytes int64) {
	var total, pages int64
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err == nil {
		_, err = fmt.Sscan(string(data), &total, &pages)
	}
	if err != nil {
		b.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
