// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"errors"
	"io"
	"testing"

	"github.com/substorm/substorm/internal/tree"
	"github.com/substorm/substorm/internal/wire"
)

// Other doors read what is held, and what they read is held; what does not fit is read
// from the store.
func TestOpen(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	small, large := noise(100_000), noise(8<<20+1)
	a := l.put(camera, "a.jpg", small)
	b := l.put(camera, "b.jpg", large)
	read := func(r wire.Record) (body string, held bool, err error) {
		in, err := l.archive.Open(t.Context(), r)
		if err != nil {
			return "", false, err
		}
		defer in.Close()
		whole, err := io.ReadAll(in)
		if in, ok := in.(interface{ Bytes() []byte }); ok {
			return string(in.Bytes()), err == nil && string(whole) == string(in.Bytes()), err
		}
		return string(whole), false, err
	}
	for range 2 {
		if body, held, err := read(a); body != small || !held || err != nil {
			t.Errorf("small: %d bytes, held: %v, %v", len(body), held, err)
		}
	}
	if got := l.get("/archive/allsky-1/a.jpg"); got.status != 200 || got.body != small {
		t.Errorf("%d with %d bytes", got.status, len(got.body))
	}
	if n := l.gets.Load(); n != 1 {
		t.Errorf("the store was asked %d times", n)
	}
	if body, held, err := read(b); body != large || held || err != nil {
		t.Errorf("large: %d bytes, held: %v, %v", len(body), held, err)
	}
	for name, body := range map[string]string{"c.jpg": small[1:], "d.jpg": large[1:]} {
		r := l.put(camera, name, body)
		l.store(r.Key, "x"+body[1:])
		if _, _, err := read(r); !errors.Is(err, tree.ErrDamaged) {
			t.Errorf("%s is damaged: %v", name, err)
		}
	}
	full := newLab(t, func(c *config) { c.Memory = 1000 })
	in, err := full.archive.Open(t.Context(), full.put(camera, "a.jpg", small))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if body, err := io.ReadAll(in); string(body) != small || err != nil {
		t.Errorf("without room: %d bytes, %v", len(body), err)
	}
}
