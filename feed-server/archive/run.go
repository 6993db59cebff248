// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/wire"
)

// run is what came from one address to one port in one day, as it came: one run of
// bytes, to which later data is appended.
type run struct {
	parts []contributed
	// objects as they were received, where they were asked for.
	objects []sent
	// public: everybody may have all of it.
	public bool
}

// contributed is what came by one instrument.
type contributed struct {
	instrument string
	sum
}

// sent is an object, and by which instrument it came.
type sent struct {
	*wire.Record
	instrument string
}

func (r *run) add(in wire.InstrumentEntry, s sum, objects []*wire.Record) {
	r.parts = append(r.parts, contributed{in.Instrument, s})
	r.public = r.public && endpoint.Public(in)
	for _, o := range objects {
		r.objects = append(r.objects, sent{o, in.Instrument})
	}
}

func (r *run) size() (bytes int64) {
	for _, c := range r.parts {
		bytes += c.size
	}
	return bytes
}

// tag is a strong entity tag.
func (r *run) tag() string {
	h := sha256.New()
	for _, c := range r.parts {
		_, _ = h.Write(c.digest[:])
	}
	return `"` + hex.EncodeToString(h.Sum(nil)[:16]) + `"`
}

func (r *run) policy() string {
	scope := "private"
	if r.public {
		scope = "public"
	}
	return scope + ", max-age=" + strconv.Itoa(int(listingAge/time.Second))
}

// writeRun writes a part of a run, object by object. Each is compared with its digest
// before its last byte goes out.
func (a *Archive) writeRun(v *endpoint.Request, write func([]byte) error, r *run, asked part) error {
	for _, o := range r.objects {
		count := func(p []byte) error {
			if err := write(p); err != nil {
				return err
			}
			v.Share(o.instrument, int64(len(p)))
			return nil
		}
		head, tail := objectpath.Framed(*o.Record)
		if err := count(asked.of(head)); err != nil {
			return err
		}
		asked = asked.behind(int64(len(head)))
		if err := a.writeObject(v, count, o.Record, asked.within(o.Size)); err != nil {
			v.About(o.instrument) // whose it is, if it is damaged
			return err
		}
		asked = asked.behind(o.Size)
		if err := count(asked.of(tail)); err != nil {
			return err
		}
		if asked = asked.behind(int64(len(tail))); asked.length == 0 {
			return nil
		}
	}
	return fmt.Errorf("%d bytes are missing at its end", asked.length)
}

// writeObject writes a part of an object. All of one comes from the store as it passes:
// a run is longer than what is held.
func (a *Archive) writeObject(v *endpoint.Request, write func([]byte) error, o *wire.Record, asked part) error {
	if asked.length == 0 {
		return nil
	}
	if asked.length < o.Size && o.Size <= verifiedBelow {
		held, err := a.getVerified(v.Context(), o)
		if err != nil {
			return err
		}
		if held != nil {
			defer a.hot.release(held)
			return write(asked.of(held.data))
		}
	}
	return a.pass(v.Context(), write, o, asked)
}
