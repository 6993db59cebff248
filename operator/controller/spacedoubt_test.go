// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"
)

// TestNodeDoubt: what was known of nodes counts while their watch is away for a moment, and not while it stays away, or where the right is missing.
func TestNodeDoubt(t *testing.T) {
	type failure struct {
		at     time.Duration
		denied bool
	}
	for name, c := range map[string]struct {
		failures []failure
		at       time.Duration
		unread   bool
	}{
		"none":                        {nil, 0, false},
		"one":                         {[]failure{{0, false}}, time.Second, false},
		"for a moment":                {[]failure{{0, false}, {3 * time.Second, false}, {10 * time.Second, false}}, 11 * time.Second, false},
		"for long":                    {[]failure{{0, false}, {10 * time.Second, false}, {nodesGrace, false}}, nodesGrace + time.Second, true},
		"for long, and it works":      {[]failure{{0, false}, {nodesGrace, false}}, nodesGrace + nodesDoubt, false},
		"the right is missing":        {[]failure{{0, true}}, time.Second, true},
		"and was given then":          {[]failure{{0, true}}, nodesDoubt, false},
		"two that have little to do":  {[]failure{{0, false}, {2 * nodesDoubt, false}}, 2*nodesDoubt + time.Second, false},
		"it was missing, and returns": {[]failure{{0, true}, {time.Second, false}}, 2 * time.Second, false},
	} {
		var d nodeDoubt
		begun := time.Now()
		for _, f := range c.failures {
			d.noteFailure(begun.Add(f.at), f.denied)
		}
		if is := d.isUnread(begun.Add(c.at)); is != c.unread {
			t.Errorf("%s: unread is %v", name, is)
		}
		d.read()
		if d.isUnread(begun.Add(c.at)) {
			t.Errorf("%s: unread, and all of it has been read", name)
		}
	}
}
