// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// A name belongs to an object or to a folder: the second is refused, by PUT and by tus, and also by an Instrument that keeps
// versions.
func TestNameIsFileAndFolder(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port := testenv.FreePort(t)
	e := httpInstrument("camera", port)
	e.Versions = wire.VersionsKeep
	l.declare(t, e)
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	awaitListening(t, port)
	object := random(1, 3000)
	refused := func(r reply, both ...string) {
		t.Helper()
		r.wantRefusal(t, 409, wire.CauseNameConflict)
		for _, name := range both {
			if !strings.Contains(r.problem.Detail, `"`+name+`"`) {
				t.Errorf("the refusal does not name %q: %s", name, r.problem.Detail)
			}
		}
		if strings.Contains(r.problem.Detail, "archive.versions") {
			t.Errorf("the refusal advises what does not help: %s", r.problem.Detail)
		}
	}
	upload := func(name string) reply {
		url := beginUpload(t, port, name, len(object))
		return patch(url, 0, bytes.NewReader(object), "Repr-Digest", reprDigest(object))
	}

	put(in(port, "camera", "clash"), object).wantReceipt(t, 201, object)
	refused(put(in(port, "camera", "clash/x.txt"), object), "clash/x.txt", "clash")
	refused(put(in(port, "camera", "clash/deep/x.txt"), object[1:]), "clash/deep/x.txt", "clash")
	refused(upload("clash/x.txt"), "clash/x.txt", "clash")

	put(in(port, "camera", "a/b/c.txt"), object).wantReceipt(t, 201, object)
	for _, folder := range []string{"a", "a/b"} {
		refused(put(in(port, "camera", folder), object[1:]), folder, folder+"/")
		refused(put(in(port, "camera", folder), object[1:], "If-None-Match", "*"), folder, folder+"/")
		refused(put(in(port, "camera", folder), object[1:], "Expect", "100-continue", "Repr-Digest", reprDigest(object[1:])), folder, folder+"/")
	}
	refused(upload("a/b"), "a/b", "a/b/")

	// Neighbours fit, and what is there is known again.
	put(in(port, "camera", "a/b.txt"), object).wantReceipt(t, 201, object)
	put(in(port, "camera", "a/b/c.txt"), object[1:]).wantReceipt(t, 201, object[1:])
	put(in(port, "camera", "clash"), object).wantReceipt(t, 200, object)

	// An imported object has claimed no name.
	if err := l.store.Put(t.Context(), wire.NamedKey(l.site, "camera", "imported", 1), bytes.NewReader(object), int64(len(object)), objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	refused(put(in(port, "camera", "imported/x"), object), "imported/x", "imported")
	if n := len(l.notices(t)); n != 4 {
		t.Errorf("%d objects are announced, want 4", n)
	}
}
