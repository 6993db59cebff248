// SPDX-License-Identifier: Apache-2.0

package spool

import "os"

// output writes to a file through one buffer. The bytes in the buffer can be cut off as
// if they had never been written.
type output struct {
	file *os.File
	// at is where the buffer goes.
	at  int64
	buf []byte
}

func (o *output) begin(f *os.File, at int64) { o.file, o.at, o.buf = f, at, o.buf[:0] }

// end is where the next byte goes.
func (o *output) end() int64 { return o.at + int64(len(o.buf)) }

func (o *output) write(p []byte) error {
	for len(p) > 0 {
		if err := o.makeSpace(); err != nil {
			return err
		}
		n := copy(o.buf[len(o.buf):cap(o.buf)], p)
		o.buf = o.buf[:len(o.buf)+n]
		p = p[n:]
	}
	return nil
}

func (o *output) makeSpace() error {
	if len(o.buf) < cap(o.buf) {
		return nil
	}
	return o.flush()
}

// space is a place for up to so many of the next bytes.
func (o *output) space(limit int64) []byte {
	space := o.buf[len(o.buf):cap(o.buf)]
	return space[:min(int64(len(space)), limit)]
}

// advance says that n bytes were written to space, and returns them.
func (o *output) advance(n int) []byte {
	from := len(o.buf)
	o.buf = o.buf[:from+n]
	return o.buf[from:]
}

func (o *output) flush() error {
	if _, err := o.file.WriteAt(o.buf, o.at); err != nil {
		return err
	}
	o.at += int64(len(o.buf))
	o.buf = o.buf[:0]
	return nil
}

// cut removes what was written from an offset on.
func (o *output) cut(offset int64) error {
	if offset >= o.at {
		o.buf = o.buf[:offset-o.at]
		return nil
	}
	o.at, o.buf = offset, o.buf[:0]
	return o.file.Truncate(offset)
}
