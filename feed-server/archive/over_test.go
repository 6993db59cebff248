// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// An object is not sent to its end to a client that may not read it any more: access is checked
// again each time a part is sent.
func TestOver(t *testing.T) {
	t.Parallel()
	const size = 64 << 20 // more than the buffers between a server and a client that does not read hold
	l := archivetest.New(t)
	l.Open()
	was := *l.Snapshot()
	in := was.Instruments[archivetest.Camera]
	in.Access = archivetest.Restricted
	was.Instruments = map[string]wire.InstrumentEntry{archivetest.Camera: in}
	r := l.Put(archivetest.Camera, "a.jpg", strings.Repeat("a", size))
	l.Wait(r)
	for what, then := range map[string]registry.Snapshot{
		"the token is revoked": {Revision: 2, Instruments: was.Instruments},
		"it is gone":           {Revision: 2, Readers: was.Readers},
		"nothing changed":      {Revision: 2, Instruments: was.Instruments, Readers: was.Readers},
	} {
		l.Set(&was)
		resp := l.Request(http.MethodGet, "/archive/allsky-1/a.jpg", "Authorization", "Bearer "+archivetest.Token)
		l.Set(&then)
		got, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if whole := err == nil && got == size; whole != (what == "nothing changed") {
			t.Errorf("%s: %d, %d bytes, %v", what, resp.StatusCode, got, err)
		}
	}
}
