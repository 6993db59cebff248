// SPDX-License-Identifier: Apache-2.0

package names

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

func version(number int, body, gateway string, announced bool) wire.NameVersion {
	v := wire.NameVersion{Version: number, Key: wire.NamedKey("thule", "camera", "a/b", number), Gateway: gateway, Announced: announced}
	if body != "" {
		v.Digest, v.Size, v.ReceivedAt = sha256.Sum256([]byte(body)), int64(len(body)), time.Unix(int64(number), 0).UTC()
	}
	return v
}

func TestMerge(t *testing.T) {
	known := func(versions ...wire.NameVersion) map[int]wire.NameVersion {
		byNumber := map[int]wire.NameVersion{}
		for _, v := range versions {
			byNumber[v.Version] = v
		}
		return byNumber
	}
	one, two, three := version(1, "one", "a", true), version(2, "two", "a", true), version(3, "three", "a", true)
	for _, test := range []struct {
		what      string
		claim     []wire.NameVersion
		listed    map[int]wire.NameVersion
		want      []wire.NameVersion
		changed   bool
		conflicts []wire.NameVersion
	}{
		{what: "lost", listed: known(one, two), want: []wire.NameVersion{one, two}, changed: true},
		{what: "whole", claim: []wire.NameVersion{one, two}, listed: known(one), want: []wire.NameVersion{one, two}},
		{what: "never stored", listed: known(three), want: []wire.NameVersion{version(1, "", "", false), version(2, "", "", false), three}, changed: true},
		{what: "later day", claim: []wire.NameVersion{version(1, "", "", false), version(2, "", "", false), three}, listed: known(one),
			want: []wire.NameVersion{one, version(2, "", "", false), three}, changed: true},
		{what: "not marked", claim: []wire.NameVersion{version(1, "one", "a", false)}, listed: known(one), want: []wire.NameVersion{one}, changed: true},
		{what: "taken meanwhile", claim: []wire.NameVersion{version(1, "other", "b", true)}, listed: known(one, two),
			want: []wire.NameVersion{version(1, "other", "b", true), two}, changed: true, conflicts: []wire.NameVersion{one}},
	} {
		l := &listed{instrument: "camera", name: "a/b", versions: test.listed}
		got, changed, conflicts := merge("thule", wire.NameClaim{Versions: test.claim}, l)
		if diff := cmp.Diff(test.want, got.Versions); diff != "" || changed != test.changed {
			t.Errorf("%s: changed %t (-want +got):\n%s", test.what, changed, diff)
		}
		if diff := cmp.Diff(test.conflicts, conflicts); diff != "" {
			t.Errorf("%s: conflicts (-want +got):\n%s", test.what, diff)
		}
		value, err := wire.Encode(got)
		if err == nil {
			_, err = wire.Decode[wire.NameClaim](value)
		}
		if err != nil {
			t.Errorf("%s: %v", test.what, err)
		}
	}
}

func TestClaimOf(t *testing.T) {
	r := wire.Record{ID: wire.NamedKey("thule", "camera", "a/b", 2), Name: "a/b", Version: 2, Digest: sha256.Sum256(nil)}
	if v, claimed := claimOf("thule", "camera", r); !claimed || v.Version != 2 || v.Key != r.ID || !v.Announced {
		t.Errorf("%+v, %t", v, claimed)
	}
	imported := r
	imported.ID = "old/a/b"
	if _, claimed := claimOf("thule", "camera", imported); claimed {
		t.Error("what was imported claimed no name")
	}
}
