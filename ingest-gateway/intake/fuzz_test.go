// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// FuzzRegistryEntry: the listeners of an accepted entry can be asked, and no sender is identified
// without what the entry declares.
func FuzzRegistryEntry(f *testing.F) {
	seeds, err := filepath.Glob("../../internal/wire/testdata/v1/registry-*.json")
	if err != nil || len(seeds) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, seed := range seeds {
		b, err := os.ReadFile(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"format":1,"instrument":"a","maxObjectSize":1,"maxConnections":1,"listeners":[{"protocol":"HTTP","port":1,"tls":"Server","tokens":[{"salt":"00","sha256":""}]}]}`))
	addr := netip.MustParseAddr("192.0.2.7")
	f.Fuzz(func(t *testing.T, raw []byte) {
		entry, err := wire.Decode[wire.InstrumentEntry](raw)
		if err != nil {
			return
		}
		b := registry.NewBucket(time.Unix(1, 0))
		b.Take(wire.RegistryInstrumentKey(entry.Instrument), raw, true)
		s := resolve(&Snapshot{}, registry.Resolve(registry.New().Snapshot(), b), Scope{Pool: entry.Gateway, FirstPort: 1, LastPort: 65535})
		for name, in := range s.Instruments() {
			if in.MaxObjectSize <= 0 || in.MaxConnections <= 0 {
				t.Errorf("taken with limits %d and %d", in.MaxObjectSize, in.MaxConnections)
			}
			for _, w := range in.Listeners {
				listener, refusal := s.Identify(Claim{Protocol: w.Protocol, Port: w.Port, Addr: addr, Instrument: name})
				if (listener == nil) == (refusal.Cause == "") {
					t.Errorf("listener %v and refusal %+v", listener, refusal)
				}
				if listener != nil && (listener.TLS != "" || len(listener.Tokens) > 0 || len(listener.CertificateNames) > 0 || in.Retired) {
					t.Errorf("identified without a thing: %+v", listener)
				}
			}
		}
	})
}
