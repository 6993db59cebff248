// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"net/http"
	"testing"
)

// The day is that of the study's tables, and in the storm only people ask more.
func TestTraffic(t *testing.T) {
	t.Parallel()
	sum := 0.
	for _, k := range kinds {
		sum += k.share
	}
	if math.Abs(sum-100) > 1e-9 {
		t.Errorf("the shares are %v %% together", sum)
	}
	o := order{Speed: 10, Gets: 1, Addresses: 1, Files: make([]string, 1000), Pages: make([]string, 10), Films: make([]string, films1+bulk)}
	stormy := o
	stormy.Gets, stormy.Addresses = stormGets, stormAddresses
	const many = 200_000
	var robots, clients [2]float64
	for i, o := range []order{o, stormy} {
		traffic := newTraffic(o, "")
		people, heads, from := 0., 0., map[string]bool{}
		for range many {
			r, k, address := traffic.next()
			if r.method == http.MethodHead {
				heads++
			}
			if k.people {
				people++
				from[address] = true
			}
		}
		seconds := many / traffic.rate()
		robots[i], clients[i] = (many-people)/seconds, float64(len(from))/seconds
		if share := heads / seconds / (perSecond * float64(o.Speed)); math.Abs(share-0.116) > 0.005 {
			t.Errorf("HEADs are %v of the day's requests", share)
		}
		if share := people / seconds / (perSecond * float64(o.Speed)); math.Abs(share/(0.495*float64(o.Gets))-1) > 0.02 {
			t.Errorf("people make %v times the day's requests", share)
		}
	}
	if math.Abs(robots[1]/robots[0]-1) > 0.02 || clients[1] <= clients[0] {
		t.Errorf("robots ask %v times a second, then %v; people come from %v new addresses a second, then %v", robots[0], robots[1], clients[0], clients[1])
	}
}
