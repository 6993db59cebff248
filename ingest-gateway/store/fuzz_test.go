// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// FuzzClock opens any bytes as the file in which the last incarnation left its time, at
// any time: the clock goes forward, and no more than a minute away from it.
func FuzzClock(f *testing.F) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC).UnixNano()
	told := func(at int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(at)) }
	f.Add(told(noon), noon)
	f.Add(told(noon+int64(30*time.Second)), noon)
	f.Add(told(noon+int64(2*time.Minute)), noon)
	f.Add(told(math.MaxInt64), noon)
	f.Add(told(math.MinInt64), noon)
	f.Add(told(noon)[:5], noon)
	f.Add([]byte{}, noon)
	f.Fuzz(func(t *testing.T, data []byte, now int64) {
		if now < 0 || now > math.MaxInt64-2*int64(time.Hour) {
			return // until 1970, and from 2262 on, no nanosecond has a number
		}
		path := filepath.Join(t.TempDir(), "clock")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		c := &clock{}
		if err := c.open(path, time.Unix(0, now), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		defer c.file.Close()
		first := c.after(now)
		if ahead := first.UnixNano() - now; ahead < 0 || ahead > int64(clockTrust+2*clockSlack) {
			t.Fatalf("at %d the clock tells %d", now, first.UnixNano())
		}
		if len(data) == 8 {
			if last := int64(binary.LittleEndian.Uint64(data)); last >= now && last-now <= int64(clockTrust) && first.UnixNano() <= last {
				t.Fatalf("the last incarnation told %d, this one tells %d", last, first.UnixNano())
			}
		}
		if second := c.after(now); !second.After(first) {
			t.Fatalf("%v follows %v", second, first)
		}
	})
}
