// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/substorm/substorm/bench/internal/load"
	"github.com/substorm/substorm/bench/internal/receiver"
	"github.com/substorm/substorm/bench/internal/report"
)

// site is the whole gateway, and its store.
type site struct {
	gateway *receiver.Process
	bucket  receiver.Bucket
}

func (b *bench) startSite() {
	backends := receiver.StartBackends(b.lab)
	var o receiver.Options
	if dir := os.Getenv(profiles); dir != "" {
		o.Profile = filepath.Join(dir, "site.pprof")
	}
	b.site = &site{bucket: backends.Bucket, gateway: receiver.StartSite(b.lab, backends, o)}
}

func storeCell(size, senders int) string {
	return fmt.Sprintf("%d KiB, %d senders, with the store", size>>10, senders)
}

// store measures the gateway with its store, and the store alone, in turns.
func (b *bench) store(round int) error {
	n := cores[len(cores)-1]
	for _, size := range load.StoreSizes {
		for _, s := range load.StoreSenders {
			through := load.Large(b.site.gateway.Address, size, s, storeWindow)
			direct := load.Order{Objects: &b.site.bucket, Size: size, Senders: s, Duration: storeWindow}
			for i := range 2 {
				c, o := candidate{name: receiver.Site}, through
				if (i+round)%2 == 1 {
					c, o = candidate{name: alone}, direct
				}
				if err := b.measure(n, c, storeCell(size, s), o); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// conclude adds the ratios. Each is of the geometric mean over its cases.
func (b *bench) conclude() {
	ours := func(against receiver.Kind, some []int) []report.Pair {
		var pairs []report.Pair
		for _, size := range some {
			for _, n := range cores {
				for _, s := range senders {
					pairs = append(pairs, report.Pair{
						Case: cell(size, s, n), Candidate: string(receiver.Gateway), OfCase: cell(size, s, n), OfCandidate: string(against),
					})
				}
			}
		}
		return pairs
	}
	r := b.report
	r.Note("Ratios are of geometric means over their cases, the median over rounds. Sizes in KiB, 1 MB/s is 10^6 bytes a second.")
	r.Note("%q is TCP, intake, slabs, SHA-256, ledger and receipt by themselves; %q is the whole of it with MinIO and JetStream (synced).", receiver.Gateway, receiver.Site)
	r.Note("%q is minio-go with the same sizes and concurrency, one request each, its digest known for nothing.", alone)
	r.Note("Senders share the machine: with one core the receiver has the first and they the rest, with two all share both.")
	r.Compare("gateway/static-8MB", ours(receiver.Static, sizes), "", 0)
	if len(r.Values(cell(small, 1, 1), string(ncat))) > 0 {
		r.Compare("gateway/ncat", ours(ncat, sizes), "", 0)
	}
	for _, size := range []int{small, mega, large} {
		r.Compare(fmt.Sprintf("gateway/hashing-null@%dKiB", size>>10), ours(receiver.Hash, []int{size}), "", 0)
	}
	var pairs []report.Pair
	for _, size := range load.StoreSizes {
		var some []report.Pair
		for _, s := range load.StoreSenders {
			some = append(some, report.Pair{
				Case: storeCell(size, s), Candidate: string(receiver.Site), OfCase: storeCell(size, s), OfCandidate: string(alone),
			})
		}
		r.Compare(fmt.Sprintf("with-store/store-alone@%dKiB", size>>10), some, "", 0)
		pairs = append(pairs, some...)
	}
	var growth []report.Pair
	for _, n := range cores {
		for _, s := range senders {
			growth = append(growth, report.Pair{
				Case: cell(large, s, n), Candidate: string(receiver.Gateway), OfCase: cell(mega, s, n), OfCandidate: string(receiver.Gateway),
			})
		}
	}
	r.Compare("gateway/hashing-null", ours(receiver.Hash, sizes), ">=", 0.9)
	r.Compare("with-store/store-alone", pairs, ">=", 0.85)
	r.Compare("8MB/1MB", growth, ">=", 0.95)
}
