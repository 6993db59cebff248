// SPDX-License-Identifier: Apache-2.0

package archive

import "sync"

// maxRemembered bounds what is remembered of each kind; one takes less than 2 KiB.
const maxRemembered = 4096

// remembered is what was found in days, as long as they have the tags that they had:
// clients ask for the same again and again, and a day may have an object each second.
// The zero value is ready.
type remembered[K comparable, V any] struct {
	mu  sync.Mutex
	all map[K]tagged[V]
}

type tagged[V any] struct {
	tag   string
	value V
}

// of returns what was found, if the day still has the tag.
func (r *remembered[K, V]) of(key K, tag string) (V, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	is, known := r.all[key]
	return is.value, known && is.tag == tag
}

// put remembers what was found in a day with a tag. If there are too many entries, it forgets
// all others.
func (r *remembered[K, V]) put(key K, tag string, value V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil || len(r.all) >= maxRemembered {
		r.all = make(map[K]tagged[V])
	}
	r.all[key] = tagged[V]{tag, value}
}
