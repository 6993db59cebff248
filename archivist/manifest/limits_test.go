// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	read "github.com/substorm/substorm/internal/manifest"
)

// An identity and an indexed object take no more memory than the limits assume, even at
// the sizes at which maps have just grown.
func TestCosts(t *testing.T) {
	for _, n := range []int{10_000, 30_000, 115_000, 230_000} {
		perID := heapOf(func() any {
			ids := make(idSet)
			for i := range n {
				ids[read.HashID(fmt.Sprint("o/thule/allsky-1/r/", i))] = current
			}
			return ids
		}) / n
		perObject := heapOf(func() any {
			x := newIndex(site, n, NewMetrics(prometheus.NewRegistry()))
			for i := range n {
				x.add("allsky-1", raw("allsky-1", noon.Add(time.Duration(i)*time.Millisecond), fmt.Sprint(i)))
			}
			return x
		}) / n
		t.Logf("of %d: %d bytes for an identity, %d for an object of the index", n, perID, perObject)
		if perID > idCost || perObject > indexCost {
			t.Errorf("of %d an identity takes %d bytes and an object of the index %d; the limits count on %d and %d",
				n, perID, perObject, idCost, indexCost)
		}
	}
}

// heapOf returns the bytes that what build makes takes on the heap.
func heapOf(build func() any) int {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	made := build()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(made)
	return int(int64(after.HeapAlloc) - int64(before.HeapAlloc))
}

func TestLimitsStayWithinMemory(t *testing.T) {
	for _, memory := range []int64{0, 1 << 20, 8 << 20, 64 << 20} {
		l := limitsOf(memory)
		most := int64(l.index*indexCost + l.ids*idCost + l.ids/2*idCost + l.ids*idCost)
		if most > max(memory, minMemory) || l.index == 0 || l.ids == 0 {
			t.Errorf("%d bytes: %+v may take %d", memory, l, most)
		}
	}
}
