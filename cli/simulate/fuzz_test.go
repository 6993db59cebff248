// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"testing"
	"time"
)

// FuzzModel reads any text as a model. A model that is accepted can be planned: time goes forward,
// and every object has a size that can be sent.
func FuzzModel(f *testing.F) {
	f.Add([]byte(mixture))
	f.Add([]byte("name: one\nsources:\n- {name: a, sizes: [1Ki]}\n"))
	f.Add([]byte("sources:\n- {name: a, sizes: [1Ki], rate: 1e-300}\n"))
	f.Add([]byte("sources:\n- {name: a, sizes: [1Ki], rate: 1e300, poisson: true}\n"))
	f.Add([]byte("sources:\n- {name: a, sizes: [1Ki], every: 1000h, bursts: {lasting: 1ns, silence: 1ns}}\n"))
	f.Add([]byte("sources:\n- {name: a, sizes: [-1], every: 1s}\n"))
	f.Add([]byte("sources: [{name: a, sizes: [1Ki], deviationPercent: .nan}]"))
	f.Add([]byte("sources: {}"))
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parse(text)
		if err == nil {
			err = m.check()
		}
		if err != nil {
			return
		}
		before := time.Duration(0)
		for _, e := range drawn(m, 7, time.Minute, 200) {
			s := m.Sources[e.source]
			if e.at < before || e.instrument >= s.Count || e.size < minSize || e.size > maxSize || s.Protocol == UDP && e.size > maxDatagram {
				t.Fatalf("%+v at %v: %+v", s, before, e)
			}
			before = e.at
		}
	})
}
