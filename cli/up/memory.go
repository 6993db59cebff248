// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// settleAfter is how long after the Site is ready memory is given back: what the start needed has been dropped by then.
	settleAfter = time.Minute
	// collectEvery is how often garbage is collected at most, as far as the bounds of its share allow. The share of garbage in the heap, in
	// percent of what is needed, may be larger if more is allocated: a station that receives little takes little memory, and one that receives
	// much does not spend its time on collecting. The allocation is measured over overGarbage, so that a single burst changes little.
	// Garbage of the start outlasts it, as holes between what is kept: with 100 percent of it, 13 MB more stay resident, and with 50 a start takes 0.06 s longer.
	collectEvery               = 5 * time.Second
	leastGarbage, maxGarbage   = 20, 100
	startGarbage               = 50
	garbageStep, lookAtGarbage = 20, time.Second
	overGarbage                = 30 * time.Second
)

// tendMemory bounds the garbage until ctx ends, and gives back what only the start needed.
func (s *site) tendMemory(ctx context.Context) error {
	tick := time.NewTicker(lookAtGarbage)
	defer tick.Stop()
	settle := time.After(settleAfter)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-settle:
			s.giveBack()
		case <-tick.C:
			s.collector.look()
		}
	}
}

// giveBack releases free memory of the heap to the kernel, and the pages of the program's file; a start reads three quarters of them. The
// kernel keeps these in its cache as long as it has memory, so that one that is needed again costs no reading.
func (s *site) giveBack() {
	debug.FreeOSMemory()
	if err := dropProgram(); err != nil {
		s.log.Warn("cannot release memory that only the start needed; it stays in use", "error", err)
	}
}

// collector sets how much garbage there may be, unless GOGC says that: then it does nothing.
type collector struct {
	idle    bool
	samples [2]metrics.Sample // allocated since the start, and needed at the last collection, in bytes
	// allocated since the start, at the last looks: one for each second of overGarbage at most, the oldest one first.
	allocated []uint64
	percent   int
}

// newCollector sets what holds for the start.
func newCollector() *collector {
	c := &collector{idle: os.Getenv("GOGC") != ""}
	c.samples[0].Name, c.samples[1].Name = "/gc/heap/allocs:bytes", "/gc/heap/live:bytes"
	c.set(startGarbage)
	return c
}

func (c *collector) set(percent int) {
	if c.idle || percent == c.percent {
		return
	}
	c.percent = percent
	debug.SetGCPercent(percent)
}

// look is called each second.
func (c *collector) look() {
	metrics.Read(c.samples[:])
	allocated, needed := c.samples[0].Value.Uint64(), c.samples[1].Value.Uint64()
	c.allocated = append(c.allocated, allocated)
	if len(c.allocated) <= int(overGarbage/lookAtGarbage) {
		return
	}
	c.set(garbagePercent(allocated-c.allocated[0], needed))
	c.allocated = c.allocated[1:]
}

// garbagePercent is what GOGC is to be where so many bytes were allocated within overGarbage and so many are needed.
func garbagePercent(allocated, needed uint64) int {
	each := float64(allocated) / float64(overGarbage/collectEvery) // within collectEvery
	steps := math.Ceil(100 * each / float64(max(needed, 1)) / garbageStep)
	return int(max(leastGarbage, min(steps*garbageStep, maxGarbage)))
}

// dropProgram unmaps the pages of the program's file that were read, until they are read again (madvise(2), MADV_DONTNEED).
func dropProgram() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	clean, err := cleanMappings(f, program)
	if err != nil {
		return err
	}
	for _, m := range clean {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); errno != 0 {
			err = errors.Join(err, fmt.Errorf("madvise %x-%x: %w", m.from, m.to, errno))
		}
	}
	return err
}

// mapping is a range of addresses.
type mapping struct{ from, to uintptr }

// cleanMappings finds the mappings of a file whose pages do not differ from the file, and never can, in a table as of proc_pid_smaps(5).
// A mapping that is read-only now may have been written to before: if a program was linked to libraries, its loader did that. Such pages
// are anonymous, or, while they are swapped out, in swap.
func cleanMappings(smaps io.Reader, file string) (clean []mapping, err error) {
	var current *mapping
	none := 0 // of the current mapping: how many of the two kinds of such pages it has none of
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) >= 5 && !strings.HasSuffix(fields[0], ":"):
			current, none = nil, 0
			if len(fields) == 6 && fields[5] == file && !strings.Contains(fields[1], "w") {
				current = &mapping{}
				if _, err := fmt.Sscanf(fields[0], "%x-%x", &current.from, &current.to); err != nil {
					return nil, fmt.Errorf("/proc/self/smaps: %q: %w", lines.Text(), err)
				}
			}
		case current != nil && len(fields) == 3 && (fields[0] == "Anonymous:" || fields[0] == "Swap:") && fields[1] == "0":
			if none++; none == 2 {
				clean = append(clean, *current)
			}
		}
	}
	return clean, lines.Err()
}
