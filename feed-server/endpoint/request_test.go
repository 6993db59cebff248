// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// A live answer continues only while the reader may have it.
func TestStill(t *testing.T) {
	t.Parallel()
	hash := func(token string) map[string]wire.ReaderEntry {
		return map[string]wire.ReaderEntry{"uni": {Tokens: []wire.TokenHash{wire.HashToken([]byte("salt"), token)}}}
	}
	for access, entry := range map[string]*wire.AccessEntry{"readers": {Archive: wire.AccessAuthenticated}, "nobody": {Archive: wire.AccessRestricted}} {
		for _, c := range []struct {
			what string
			now  registry.Snapshot
			want error
		}{
			{"nothing changed", registry.Snapshot{Readers: hash("one"), Instruments: map[string]wire.InstrumentEntry{"mag": {Instrument: "mag", Access: entry}}}, nil},
			{"its token is none", registry.Snapshot{Readers: hash("two"), Instruments: map[string]wire.InstrumentEntry{"mag": {Instrument: "mag", Access: entry}}}, ErrOver},
			{"the instrument is gone", registry.Snapshot{Readers: hash("one")}, ErrOver},
		} {
			g := NewAccessCheck(AccessCheckConfig{Registry: func() *registry.Snapshot { return &c.now }, Metrics: prometheus.NewRegistry()})
			v := &Request{Request: &http.Request{Header: http.Header{"Authorization": {"Bearer one"}}}, Snapshot: &registry.Snapshot{}, check: g, Now: time.Now()}
			want := c.want
			if access == "nobody" {
				want = ErrOver
			}
			if _, err := v.Still("mag"); !errors.Is(err, want) {
				t.Errorf("for %s, %s: %v", access, c.what, err)
			}
		}
	}
}
