// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/wire"
)

// FuzzNotice: what stands before a copy comes from the network.
func FuzzNotice(f *testing.F) {
	good, err := writeNotice(notice([]byte("frame")))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:20])
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := readNotice(bytes.NewReader(b))
		if err != nil {
			return
		}
		again, err := writeNotice(n)
		if err != nil {
			t.Fatal(err)
		}
		m, err := readNotice(bytes.NewReader(again))
		if err != nil || m.ID != n.ID || m.Digest != n.Digest {
			t.Fatalf("%+v became %+v, %v", n, m, err)
		}
	})
}

// FuzzDone: which copies are archived is said over the network.
func FuzzDone(f *testing.F) {
	f.Add([]byte(`["o/hub/camera/r/2026/11/21/1763726400000-00112233aabbccdd"]`))
	f.Add([]byte(`["a","b"] and more`))
	f.Add([]byte(`["a",`))
	f.Add([]byte(`{"ids":[]}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`["` + strings.Repeat(`","`, maxDone) + `"]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		ids, err := readDone(bytes.NewReader(b))
		if err != nil {
			if !errors.Is(err, wire.ErrMalformed) {
				t.Fatalf("error of no known kind: %v", err)
			}
			return
		}
		if len(ids) > maxDone {
			t.Fatalf("%d ids", len(ids))
		}
		said, err := json.Marshal(ids)
		if err != nil {
			t.Fatal(err)
		}
		again, err := readDone(bytes.NewReader(said))
		if err != nil || !slices.Equal(ids, again) {
			t.Fatalf("%q became %q, %v", ids, again, err)
		}
	})
}
