// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/wire"
)

// stringBody is an object that lies elsewhere.
type stringBody struct {
	*strings.Reader
	closed *int
}

func (b stringBody) Close() error { *b.closed++; return nil }

func assembly(t *testing.T, bodies []string) (a *Assembly, members []wire.Notice, opened, closed *int) {
	t.Helper()
	a, opened, closed = &Assembly{}, new(int), new(int)
	for i, body := range bodies {
		n := notice("sonde", body, sampleTime)
		n.Key = wire.RawKey(n.Site, n.Instrument, n.ReceivedAt, n.Digest)
		n.ID = wire.SpooledID(n)
		n, err := a.Add(n, func() (Body, error) {
			*opened++
			return stringBody{strings.NewReader(bodies[i]), closed}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, n)
	}
	return a, members, opened, closed
}

// An assembly reads as the pack that a Writer writes, in pieces and from anywhere.
func TestAssembly(t *testing.T) {
	bodies := []string{"one", strings.Repeat("x", block), strings.Repeat("yz", 20_000), "four", "five"}
	a, members, opened, closed := assembly(t, bodies)
	var want bytes.Buffer
	w := NewWriter("", &want)
	for i, n := range members {
		n.Offset, n.Length = 0, 0
		placed, err := w.Add(n, strings.NewReader(bodies[i]))
		if err != nil || placed.Offset != members[i].Offset || placed.ID != members[i].ID {
			t.Fatalf("placed at %d, want %d; %v", placed.Offset, members[i].Offset, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if a.Size() != int64(want.Len()) {
		t.Errorf("size %d, want %d", a.Size(), want.Len())
	}
	digest, err := a.Digest()
	if err != nil || digest != sha256.Sum256(want.Bytes()) {
		t.Errorf("digest %s, %v", digest, err)
	}
	r := a.Reader()
	if err := iotest.TestReader(struct{ io.ReadSeeker }{r}, want.Bytes()); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil || *opened != *closed {
		t.Errorf("%d bodies were opened and %d closed, %v", *opened, *closed, err)
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("a closed one gives %d bytes, %v", n, err)
	}
	for i, n := range members {
		n.Key = wire.PackKey("thule", sampleTime, "gateway-0", "one", 1)
		got, err := nthMember(want.Bytes(), n.Key, i)
		if err != nil || got.ID != n.ID || got.Offset != n.Offset || got.Size != n.Size {
			t.Errorf("member %d is %+v, %v", i, got, err)
		}
	}
}

// nthMember returns one of a pack's members.
func nthMember(data []byte, key string, i int) (wire.Notice, error) {
	for n, err := range bucket.MembersFrom(bytes.NewReader(data), key, int64(len(data))) {
		if err != nil || i == 0 {
			return n, err
		}
		i--
	}
	return wire.Notice{}, io.EOF
}

// A member with other bytes than received, or fewer, is distinguished from the others.
func TestAssemblyDamaged(t *testing.T) {
	for name, c := range map[string]struct {
		is   string
		want error
	}{"other bytes": {"tvo", ErrDamaged}, "fewer bytes": {"t", io.EOF}} {
		bodies := []string{"one", "two", "three"}
		a, _, _, _ := assembly(t, bodies)
		bodies[1] = c.is
		_, err := a.Digest()
		var bad *MemberError
		if !errors.As(err, &bad) || bad.Member != 1 || !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := io.ReadAll(a.Reader()); c.is == "t" && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: read without an error: %v", name, err)
		}
	}
}
