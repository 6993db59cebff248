// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestCleanMappings: of the program's mappings none is dropped that has a page which differs from the file.
func TestCleanMappings(t *testing.T) {
	const table = `00400000-00410000 r--p 00000000 fe:00 1 /usr/bin/substorm
Rss:                  64 kB
Anonymous:             0 kB
Swap:                  0 kB
00410000-00420000 r-xp 00010000 fe:00 1 /usr/bin/substorm
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me
00420000-00430000 r--p 00020000 fe:00 1 /usr/bin/substorm
Anonymous:             4 kB
Swap:                  0 kB
00430000-00440000 rw-p 00030000 fe:00 1 /usr/bin/substorm
Anonymous:             0 kB
Swap:                  0 kB
00440000-00450000 r-xp 00000000 fe:00 2 /usr/lib/libc.so.6
Anonymous:             0 kB
Swap:                  0 kB
00450000-00460000 r--p 00040000 fe:00 1 /usr/bin/substorm
Anonymous:             0 kB
Swap:                  8 kB
7ffc00000000-7ffc00010000 r--p 00000000 00:00 0
Anonymous:             0 kB
Swap:                  0 kB
`
	clean, err := cleanMappings(strings.NewReader(table), "/usr/bin/substorm")
	if want := []mapping{{0x400000, 0x410000}, {0x410000, 0x420000}}; err != nil || !slices.Equal(clean, want) {
		t.Errorf("%x, %v; want %x", clean, err, want)
	}
	if _, err := cleanMappings(strings.NewReader("0040x-00410000 r--p 0 fe:00 1 /usr/bin/substorm\n"), "/usr/bin/substorm"); err == nil {
		t.Error("a range that cannot be read was taken")
	}
}

// TestDropProgram: this test still runs after its own program was dropped, and less of the program is resident than before.
func TestDropProgram(t *testing.T) {
	before := residentOfFiles(t)
	if err := dropProgram(); err != nil {
		t.Fatal(err)
	}
	if after := residentOfFiles(t); after >= before {
		t.Errorf("%d KiB of files were resident before, %d after", before, after)
	}
}

// residentOfFiles counts the KiB of files that are resident.
func residentOfFiles(t *testing.T) (kib int) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(data), "RssFile:")
	fields := strings.Fields(rest)
	if !found || len(fields) == 0 {
		t.Fatalf("no RssFile in\n%s", data)
	}
	for _, digit := range fields[0] {
		kib = 10*kib + int(digit-'0')
	}
	return kib
}

// TestGarbagePercent: what is allocated within 30 s is six times what is allocated between two collections.
func TestGarbagePercent(t *testing.T) {
	for _, c := range []struct {
		allocated, needed uint64
		want              int
	}{
		{0, 30 << 20, leastGarbage},
		{36 << 20, 30 << 20, 20},
		{37 << 20, 30 << 20, 40},
		{150 << 20, 30 << 20, 100},
		{3_689_348_815, 30 << 20, maxGarbage}, // times the nanoseconds of collectEvery, it passes 64 bits
		{1 << 40, 30 << 20, maxGarbage},
		{6, 0, maxGarbage}, // before the first collection
	} {
		if got := garbagePercent(c.allocated, c.needed); got != c.want {
			t.Errorf("%d allocated, %d needed: %d, want %d", c.allocated, c.needed, got, c.want)
		}
	}
}
