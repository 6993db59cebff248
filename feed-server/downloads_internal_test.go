// SPDX-License-Identifier: Apache-2.0

package feedserver

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// downloads sums up what was reported to the Site about an instrument and a reader.
func (l *endpointsLab) downloads(js jetstream.JetStream, instrument, reader string) (sum wire.DownloadCount) {
	l.t.Helper()
	kv, err := js.KeyValue(l.t.Context(), wire.DownloadsBucket("hub"))
	if err != nil {
		l.t.Fatal(err)
	}
	err = stream.Entries(l.t.Context(), js, kv, ">", func(e jetstream.KeyValueEntry) error {
		of, _, err := wire.ParseDownloadsKey(e.Key())
		if err != nil || of != instrument {
			return err
		}
		d, err := wire.Decode[wire.Downloads](e.Value())
		for _, c := range d.By {
			if c.Reader == reader {
				sum = c.Plus(sum)
			}
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return sum
}

// TestDownloadsAreCounted: what the endpoints answer is in the Site's bucket a little later,
// each answer once, and what is about no instrument apart.
func TestDownloadsAreCounted(t *testing.T) {
	t.Parallel()
	l := newEndpointsLab(t)
	path := pathOf(open)
	l.until(path, 200) // as the insider
	sent := uint64(0)
	for range 5 {
		status, body := l.ask(http.MethodGet, path, anonymous)
		if status != 200 {
			t.Fatalf("%s: %d", path, status)
		}
		sent += uint64(len(body))
	}
	if status, _ := l.ask(http.MethodGet, pathOf(hidden), outsider); status < 400 {
		t.Errorf("the outsider got %d", status)
	}
	for range 3 {
		l.ask(http.MethodGet, "/archive/no-such-thing/n/hello.csv", outsider)
	}
	nc, err := nats.Connect(l.server.nc.ConnectedUrl())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	counted := func() error {
		if c := l.downloads(js, open, ""); c.Requests != 5 || c.Bytes != sent || c.Refused != 0 {
			return fmt.Errorf("anonymous readers: %+v, want 5 answers of %d bytes", c, sent)
		}
		if c := l.downloads(js, open, insider); c.Requests < 1 || c.Class == "" {
			return fmt.Errorf("the insider: %+v", c)
		}
		if c := l.downloads(js, hidden, outsider); c.Requests != 1 || c.Refused != 1 {
			return fmt.Errorf("who may not: %+v", c)
		}
		if c := l.downloads(js, wire.NoInstrument, outsider); c.Refused != 3 {
			return fmt.Errorf("of nothing: %+v", c)
		}
		if c := l.downloads(js, "no-such-thing", outsider); c.Requests != 0 {
			return fmt.Errorf("a name that nothing has is counted: %+v", c)
		}
		return nil
	}
	for range testenv.Attempts() { // totals are written at intervals; the first may end between two of these requests
		if err = counted(); err == nil {
			return
		}
	}
	t.Error(err)
}
