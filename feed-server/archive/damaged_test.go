// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// told are the reported damaged objects by ID: the instrument, and the damage.
type told struct {
	mu  sync.Mutex
	all map[string]string
}

// listen makes it the callback of a lab's endpoints.
func (d *told) listen(c *config) {
	d.all = map[string]string{}
	c.endpoint.Damaged = func(instrument string, r wire.Record, missing bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.all[r.ID] = instrument + " damaged"
		if missing {
			d.all[r.ID] = instrument + " missing"
		}
	}
}

// want fails unless exactly these objects were reported.
func (d *told) want(t *testing.T, want map[string]string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if diff := cmp.Diff(want, d.all); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// damages are what may happen to bytes.
var damages = map[string]func(string) string{
	"another-byte": func(b string) string { return b[:len(b)/2] + "\x00\x01" + b[len(b)/2+2:] },
	"another-last": func(b string) string { return b[:len(b)-1] + "\x00" },
	"too-short":    func(b string) string { return b[:len(b)-1] },
	"too-long":     func(b string) string { return b + "x" },
	"empty":        func(string) string { return "" },
}

// An object whose bytes are not the bytes that were received is never sent as if they were: of an
// object up to 8 MiB no byte is sent, of a larger one all but the last. Each damaged object is
// reported.
func TestDamaged(t *testing.T) {
	t.Parallel()
	var told told
	l := newLab(t, told.listen)
	want := map[string]string{}
	for name, damage := range damages {
		for _, size := range []int{8 << 20, 8<<20 + 64<<10, 9<<20 + 17} {
			body := noise(size)
			file := fmt.Sprintf("%s-%d.bin", name, size)
			r := l.put(camera, file, body)
			l.store(r.Key, damage(body))
			want[r.ID] = camera + " damaged"
			a := l.get("/archive/allsky-1/" + file)
			if size <= 8<<20 {
				a.want(t, name, 502)
				l.get("/archive/allsky-1/"+file, "Range", "bytes=0-9").want(t, "a part of "+name, 502)
				continue
			}
			if a.status == 200 && (a.err == nil || len(a.body) >= size) || a.status != 200 && a.status != 502 {
				t.Errorf("%s: %d, %d bytes of %d, and %v", file, a.status, len(a.body), size, a.err)
			}
			if !strings.HasPrefix(body, a.body) && name != "another-byte" && a.status == 200 {
				t.Errorf("%s: other bytes were sent", file)
			}
		}
	}
	for _, size := range []int{10, 9 << 20} {
		missing := l.put(camera, fmt.Sprintf("missing-%d.jpg", size), noise(size))
		l.remove(missing.Key)
		l.get("/archive/"+camera+"/"+missing.Path).want(t, "missing", 502)
		want[missing.ID] = camera + " missing"
	}
	if n := l.total("substorm_archive_damaged_total"); n != float64(len(want)+len(damages)) { // parts of small ones too
		t.Errorf("%v requests for what is damaged are counted", n)
	}
	told.want(t, want)
}

// A range of a large object is sent as stored; if bytes of it are missing, the object is reported.
func TestDamagedParts(t *testing.T) {
	t.Parallel()
	const size = 9 << 20
	var told told
	l := newLabOn(t, testenv.MinIO(t, testenv.MinIOOptions{}), told.listen)
	body := noise(size)
	want := map[string]string{}
	for _, c := range []struct {
		name, asked string
		lies        int // bytes
		status      int
	}{
		{"whole", "0-9", size, 206}, {"the end is missing, not asked for", "0-99999", size - 100, 206}, {"the end is missing", "-50", size - 100, 502},
		{"some of the end is missing", "-150", size - 100, 502}, {"the end of many is missing", "-500000", size - 100, 206}, {"all is missing", "0-9", 0, 502},
	} {
		r := l.put(camera, strings.ReplaceAll(c.name, " ", "-"), body)
		l.store(r.Key, body[:c.lies])
		a := l.get("/archive/"+camera+"/"+r.Path, "Range", "bytes="+c.asked)
		a.want(t, c.name, c.status)
		if c.lies == size || c.asked == "0-99999" {
			if a.err != nil {
				t.Errorf("%s: %v", c.name, a.err)
			}
			continue
		}
		if c.status == 206 && a.err == nil {
			t.Errorf("%s: it is sent as if it were whole", c.name)
		}
		want[r.ID] = camera + " damaged"
	}
	missing := l.put(camera, "missing.bin", body)
	l.remove(missing.Key)
	l.get("/archive/"+camera+"/missing.bin", "Range", "bytes=0-9").want(t, "missing", 502)
	want[missing.ID] = camera + " missing"
	told.want(t, want)
	l.minio.Kill() // nothing can be said of what cannot be asked
	l.get("/archive/"+camera+"/whole", "Range", "bytes=0-9").want(t, "without the store", 503)
	told.want(t, want)
}

// In the legacy tree a report names the instrument of the damaged object.
func TestDamagedRun(t *testing.T) {
	t.Parallel()
	var told told
	tcp := []wire.ListenerEntry{{Protocol: wire.ProtocolTCP, Port: 5000}}
	public := &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}
	l := newLab(t, told.listen, wire.InstrumentEntry{Instrument: "a", Listeners: tcp, Access: public}, wire.InstrumentEntry{Instrument: "b", Listeners: tcp, Access: public})
	want := map[string]string{}
	port := uint16(5000)
	ask := func(what string, size int, bytes string, damage func(wire.Record), is string) {
		t.Helper()
		for i, instrument := range []string{"a", "b", "a", "b"} {
			r := l.put(instrument, fmt.Sprintf("%d/%d", port, i), noise(size+i), func(r *wire.Record) { r.Port, r.ReceivedAt = port, storm.Add(time.Duration(i)*time.Second) })
			if i == 2 {
				damage(r)
				want[r.ID] = "a " + is
			}
		}
		a := l.get(fmt.Sprintf("/legacy/192.0.2.7/%d/2015/03/17", port), "Range", bytes)
		if a.status < 300 && a.err == nil || a.status >= 300 && a.status != 502 {
			t.Errorf("%s: %d with %d bytes", what, a.status, len(a.body))
		}
		port++
	}
	empty := func(r wire.Record) { l.store(r.Key, "") }
	other := func(r wire.Record) { l.store(r.Key, strings.Repeat("x", int(r.Size))) }
	missing := func(r wire.Record) { l.remove(r.Key) }
	ask("empty", 10_000, "", empty, "damaged")
	ask("missing", 10_000, "", missing, "missing")
	ask("cut, with other bytes", 10_000, "bytes=25000-", other, "damaged")
	ask("cut, and missing", 10_000, "bytes=25000-", missing, "missing")
	ask("a large one, cut and empty", 9<<20, fmt.Sprintf("bytes=%d-", 19<<20), empty, "damaged")
	ask("a large one, cut and missing", 9<<20, fmt.Sprintf("bytes=%d-", 19<<20), missing, "missing")
	told.want(t, want)
}
