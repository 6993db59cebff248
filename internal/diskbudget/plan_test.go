// SPDX-License-Identifier: Apache-2.0

package diskbudget

import "testing"

func TestPlan(t *testing.T) {
	// A disk that has 2000 beside the reserve and what others have on it.
	sizes := func(used, declared, removable int64) Sizes {
		const size = 4000
		return Sizes{Used: used, Free: 2000 + Reserve(size) - used, Size: size, Declared: declared, Removable: removable}
	}
	all := Decision{Remove: 1, Messages: true, NoReceipts: true}
	for name, c := range map[string]struct {
		sizes    Sizes
		was, out Decision
	}{
		"much is left":                              {sizes(899, 1000, 500), Decision{}, Decision{}},
		"what can be made again goes first":         {sizes(900, 1000, 500), Decision{}, Decision{Remove: 50}},
		"and on, to 85 percent":                     {sizes(851, 1000, 500), Decision{Remove: 50}, Decision{Remove: 1}},
		"no further":                                {sizes(849, 1000, 500), Decision{Remove: 50}, Decision{}},
		"nothing can be made again":                 {sizes(940, 1000, 0), Decision{}, Decision{}},
		"messages stay while pictures go":           {sizes(960, 1000, 10), Decision{Remove: 1}, Decision{Remove: 110}},
		"messages stay until it is known":           {sizes(960, 1000, Unknown), Decision{}, Decision{}},
		"then messages go":                          {sizes(950, 1000, 0), Decision{Remove: 1}, Decision{Messages: true}},
		"and on, to 90 percent":                     {sizes(900, 1000, 0), Decision{Messages: true}, Decision{Messages: true}},
		"no further than that":                      {sizes(899, 1000, 0), Decision{Messages: true}, Decision{}},
		"no receipts":                               {sizes(1000, 1000, 0), Decision{Messages: true}, Decision{Messages: true, NoReceipts: true}},
		"no receipts while pictures go":             {sizes(1000, 1000, 9), Decision{}, Decision{Remove: 150, NoReceipts: true}},
		"still none":                                {sizes(980, 1000, 0), all, Decision{Messages: true, NoReceipts: true}},
		"receipts again":                            {sizes(979, 1000, 0), all, Decision{Messages: true}},
		"all is over":                               {sizes(100, 1000, 50), all, Decision{}},
		"nothing is declared: the disk's":           {sizes(1799, 0, 5), Decision{}, Decision{}},
		"nothing is declared: the disk is full":     {sizes(2000, 0, 0), Decision{}, Decision{Messages: true, NoReceipts: true}},
		"more is declared than the disk has":        {sizes(2000, 9000, 0), Decision{}, Decision{Messages: true, NoReceipts: true}},
		"others fill the disk":                      {Sizes{Used: 100, Free: 400, Size: 4000, Declared: 1000}, Decision{}, Decision{Messages: true, NoReceipts: true}},
		"others filled it before anything was here": {Sizes{Free: 100, Size: 4000}, Decision{}, Decision{Messages: true, NoReceipts: true}},
		"not measured yet":                          {Sizes{Free: 2000, Size: 4000, Declared: 1000}, Decision{}, Decision{}},
	} {
		if out := Plan(c.sizes, c.was); out != c.out {
			t.Errorf("%s: %+v with a budget of %d: %+v, want %+v", name, c.sizes, c.sizes.Budget(), out, c.out)
		}
	}
}
