// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/internal/wire"
)

// An instrument that sends every three hours stays connected in between, however
// short idleTimeout is, and is not kept for ever once it is gone. The hours are
// virtual.
func TestQuietForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, err := intake.NewInstrument(wire.InstrumentEntry{
			Instrument: "photometer", MaxObjectSize: 1 << 20, MaxConnections: 4, MediaType: "image/fits", CadenceMillis: 3 * 3_600_000,
			Listeners: []wire.ListenerEntry{{Protocol: wire.ProtocolTCP, Port: 30100, Framing: wire.FramingLengthPrefixed, Receipt: wire.ReceiptLine,
				IdleTimeoutMillis: 60_000, MaxAgeMillis: 600_000}},
		})
		if err != nil {
			t.Fatal(err)
		}
		c := &connection{
			server: &Server{ctx: context.Background()}, listener: in.Listeners[0], heard: time.Now(),
			receipts: &receipts{slots: make(chan struct{}, maxInFlight)},
		}
		connected := time.Now()
		for range 8 { // a day of objects, each an hour late at most
			for range 4 {
				time.Sleep(time.Hour)
				if err := c.checkEnded(); err != nil {
					t.Fatalf("after %v it is cut off: %v", time.Since(connected), err)
				}
				if !c.deadline().After(time.Now()) {
					t.Fatalf("after %v it is asked again at %v", time.Since(connected), c.deadline())
				}
			}
			c.heard = time.Now() // an object came
		}
		c.receipts.slots <- struct{}{} // it waits for a receipt: we are late
		time.Sleep(7 * time.Hour)
		if err := c.checkEnded(); err != nil {
			t.Errorf("while it waits for a receipt: %v", err)
		}
		<-c.receipts.slots
		time.Sleep(time.Until(c.deadline()))
		if err := c.checkEnded(); !errors.Is(err, errLeave) {
			t.Errorf("silent for twice its cadence: %v", err)
		}
		c.began = time.Now() // within an object no sender may be silent for long
		c.heard = c.began
		time.Sleep(time.Minute)
		var end *cut
		if err := c.checkEnded(); !errors.As(err, &end) || end.cause != wire.CauseStalled {
			t.Errorf("silent within an object: %v", err)
		}
	})
}
