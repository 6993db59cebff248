// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"bytes"
	"context"
	"path"
	"strings"
	"testing"
	"time"
)

func FuzzGreeting(f *testing.F) {
	for _, seed := range []string{"@RSYNCD: 32.0 sha512 sha256 sha1 md5 md4", "@RSYNCD: 30.0", "@RSYNCD: 26", "@RSYNCD: -1.0", "GET / HTTP/1.1", "", "@RSYNCD: 99999999999.0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if protocol, sub, err := parseGreeting(line); err == nil && (protocol < 0 || sub < 0) {
			t.Errorf("protocol %d.%d", protocol, sub)
		}
	})
}

func FuzzArguments(f *testing.F) {
	for _, seed := range []string{
		"--server\x00--sender\x00-vlogDtprze.iLsfxCIvu\x00.\x00thule/\x00\x00",
		"--server\x00--sender\x00-logDtpRe.iLsfxCIvu\x00--files-from=-\x00--from0\x00.\x00thule/\x00\x00",
		"--server\x00--sender\x00-slogDtpre.iLsfxCIvu\x00\x00rsync\x00.\x00thule/../../etc/./passwd\x00\x00",
		"--server\x00-e.LsfxCIvu\x00--timeout=1000000000000\x00--checksum-seed=-1\x00.\x00thule\x00\x00", "\x00", "-",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		arguments, err := readArguments(newInput(bytes.NewReader(data)))
		if err != nil {
			return
		}
		_ = secluded(arguments)
		o, err := parseArguments("thule", arguments)
		if err != nil {
			return
		}
		for _, text := range o.paths {
			for _, relative := range []bool{false, true} {
				s := sourceOf(text, relative)
				for _, part := range []string{s.dir, s.name, s.path()} {
					if part != "" && path.Clean("/"+part) != "/"+part && part != "." || strings.HasPrefix(part, "..") && (part == ".." || part[2] == '/') {
						t.Errorf("%q, relative %t: %+v leads elsewhere", text, relative, s)
					}
				}
			}
		}
	})
}

func FuzzFilter(f *testing.F) {
	for _, seed := range []string{"- *.jpg", "+ */", "- *", "-! *.csv", "-p .partial/", "-s /a/**/b", "-r x", ": .rsync-filter", ":e .rsync-filter", "!", "- a/***", "- [!a-z]?[[:digit:]]\\*", "- " + strings.Repeat("*a", 100)} {
		f.Add(seed, "allsky-1/2026/11/24/image-a.jpg")
	}
	f.Fuzz(func(_ *testing.T, text, name string) {
		var all filter
		if all.add(text) == nil {
			all.excludes(name, false)
			all.excludes(name, true)
		}
	})
}

// Requests of a client are read as they came, or refused: whatever they are, no more is held
// than may be.
func FuzzRequests(f *testing.F) {
	frame := func(data string) []byte {
		return append([]byte{byte(len(data)), byte(len(data) >> 8), 0, 7}, data...)
	}
	for _, seed := range []string{
		"\x02\x00\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
		"\x02\x00\x80\x02\x00\x00\x00\x10\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x01\x02\x03\x04aa\x01\x02\x03\x04bb\x00",
		"\x01\x00\x18\x01\x03abc\x00\x00", "\xff\x02\x00\x00\x00\x00\x00", "\xfe\x7f\xff\x00\x00", "\xfe\xff\xff\xff\xff\x00\x80",
	} {
		f.Add(frame(seed), false, 0)
		f.Add(frame(seed), true, 1)
	}
	f.Add([]byte{4, 0, 0, 99, 1, 2, 3, 4}, false, 0)
	f.Fuzz(func(t *testing.T, data []byte, dryRun bool, appends int) {
		in := newInput(bytes.NewReader(data))
		in.framed = true
		r := newRequests(in, &options{dryRun: dryRun, appends: appends})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go r.run(ctx)
		for is := range r.all {
			if is.index >= 0 && len(is.blocks.sums) > maxBlockSums || is.index < ndxDeleted {
				t.Errorf("%+v", is)
			}
			for number := range min(10, int(is.blocks.count)) {
				is.blocks.sum(number)
			}
			r.done(is)
		}
		if r.err == nil {
			t.Error("it ends without an error")
		}
	})
}

// Numbers are read as they were written.
func FuzzNumbers(f *testing.F) {
	f.Add(int32(0), uint16(0), []byte("abc"))
	f.Add(int32(-1), uint16(1<<15), bytes.Repeat([]byte("x"), 300))
	f.Fuzz(func(t *testing.T, v int32, short uint16, text []byte) {
		var wire bytes.Buffer
		out := newOutput(&wire)
		out.framed = true
		out.varint(v)
		out.int(v)
		out.short(short)
		out.vtext(string(text[:min(len(text), 0x7fff)]))
		indexes := []int32{1, 2, 300, 70000, v & 0x7fffffff, ndxDone, ndxListEnd, ndxListBase - v&0xffff, 5}
		for _, ndx := range indexes {
			out.index(ndx)
		}
		if err := out.flush(); err != nil {
			t.Fatal(err)
		}
		in := newInput(&wire)
		in.framed = true
		number, _ := in.varint()
		whole, _ := in.int()
		half, _ := in.short()
		words, err := in.text(1 << 16)
		if number != v || whole != v || half != short || words != string(text[:min(len(text), 0x7fff)]) || err != nil {
			t.Errorf("%d %d %d %q, %v", number, whole, half, words, err)
		}
		for _, want := range indexes {
			if got, err := in.index(); got != want || err != nil {
				t.Errorf("index %d, %v; want %d", got, err, want)
			}
		}
	})
}
