// SPDX-License-Identifier: Apache-2.0

package names

import (
	"testing"

	"github.com/substorm/substorm/internal/wire"
)

// A version supersedes the last one that an object has: in rebuilt claims some have none.
func TestSupersedes(t *testing.T) {
	version := func(number int, key string, digest byte) wire.NameVersion {
		return wire.NameVersion{Version: number, Key: key, Digest: wire.Digest{digest}}
	}
	one, lost, three := version(1, "one", 1), version(2, "lost", 0), version(3, "three", 3)
	c := wire.NameClaim{Name: "a", Versions: []wire.NameVersion{one, lost, three}}
	if is := supersedes(c, three); is != "one" {
		t.Errorf("version 3 supersedes %q", is)
	}
	if is := supersedes(c, one); is != "" {
		t.Errorf("version 1 supersedes %q", is)
	}
	first := wire.NameClaim{Name: "a", Folder: true, Versions: []wire.NameVersion{version(1, "none", 0), version(2, "two", 2)}}
	if is := supersedes(first, first.Versions[1]); is != "" {
		t.Errorf("the first object of a folder's name supersedes %q", is)
	}
}
