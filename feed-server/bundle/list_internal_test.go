// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

// A line has the members that docs/reference/wire-protocols.md lists, in one order. Superseded and hidden objects have no line.
func TestLines(t *testing.T) {
	t.Parallel()
	from := time.Date(2015, 3, 17, 12, 0, 0, 0, time.UTC)
	to := from.Add(time.Second)
	full := &wire.Record{
		Size: 7, MediaType: "image/jpeg", Version: 2, ObservedFrom: &from, ObservedTo: &to, ReceivedAt: to, TimeSource: wire.TimeSourceName,
		Completeness: wire.CompletenessVerified, State: wire.StateRetracted, Reason: "a lamp", Source: "192.0.2.7:40000", Gateway: "gateway-0",
	}
	bare := &wire.Record{ReceivedAt: to, TimeSource: wire.TimeSourceReceived, State: wire.StateCurrent}
	var got string
	for l := range lines([]chosen{{record: full, path: "a"}, {record: bare, path: "b", damaged: true}, {record: bare, path: "c", hidden: true}, {record: &wire.Record{State: wire.StateSuperseded}}}) {
		got += string(l)
	}
	const none = `"sha256":"0000000000000000000000000000000000000000000000000000000000000000"`
	want := `{"path":"a","state":"Retracted","reason":"a lamp","size":7,` + none + `,"mediaType":"image/jpeg","version":2,"observedFrom":"2015-03-17T12:00:00Z",` +
		`"observedTo":"2015-03-17T12:00:01Z","receivedAt":"2015-03-17T12:00:01Z","timeSource":"Name","completeness":"Verified"}` + "\n" +
		`{"path":"b","damaged":true,"size":0,` + none + `,"receivedAt":"2015-03-17T12:00:01Z","timeSource":"Received"}` + "\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
