// SPDX-License-Identifier: Apache-2.0

package aurora

import (
	"math"
	"net/http"
	"testing"
)

// The day matches the study's tables, and in the storm only people ask more.
func TestTraffic(t *testing.T) {
	t.Parallel()
	sum := 0.
	for _, k := range kinds {
		sum += k.share
	}
	if math.Abs(sum-100) > 1e-9 {
		t.Errorf("the shares are %v %% together", sum)
	}
	calm := Day{Speed: 10, People: 1, Addresses: 1, Files: make([]string, 1000), Pages: make([]string, 10), Films: make([]string, 10), Bulk: make([]string, 10)}
	stormy := calm
	stormy.People, stormy.Addresses = StormGets, StormAddresses
	const many = 200_000
	var robots, clients [2]float64
	for i, day := range []Day{calm, stormy} {
		traffic := New(day, "")
		people, heads, from := 0., 0., map[string]bool{}
		for range many {
			r, k, address := traffic.Next()
			if r.Method == http.MethodHead {
				heads++
			}
			if k.People {
				people++
				from[address] = true
			}
		}
		seconds := many / traffic.Rate()
		robots[i], clients[i] = (many-people)/seconds, float64(len(from))/seconds
		if share := heads / seconds / (PerSecond * float64(day.Speed)); math.Abs(share-0.116) > 0.005 {
			t.Errorf("HEADs are %v of the day's requests", share)
		}
		if share := people / seconds / (PerSecond * float64(day.Speed)); math.Abs(share/(0.495*day.People)-1) > 0.02 {
			t.Errorf("people make %v times the day's requests", share)
		}
	}
	if math.Abs(robots[1]/robots[0]-1) > 0.02 || clients[1] <= clients[0] {
		t.Errorf("robots ask %v times a second, then %v; people come from %v new addresses a second, then %v", robots[0], robots[1], clients[0], clients[1])
	}
}

// PeopleFor gives the day so many times as many requests; robots make as many of them as before.
func TestPeopleFor(t *testing.T) {
	t.Parallel()
	day := Day{Speed: 10, People: 1, Addresses: 1, Files: make([]string, 10)}
	calm := New(day, "").Rate()
	day.People = PeopleFor(4)
	if got := New(day, "").Rate() / calm; math.Abs(got-4) > 1e-9 {
		t.Errorf("%v times the day's requests, want 4", got)
	}
}
