// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/encoding/protowire"
)

func compress(t *testing.T, text string) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll([]byte(text), nil)
}

// TestMalformed: every reader refuses what is no record of its kind.
func TestMalformed(t *testing.T) {
	bad := map[string]string{
		"nothing": "", "no JSON": "hello", "another type": `[1]`, "no format": `{}`, "format 0": `{"format":0}`,
		"negative format": `{"format":-1}`, "fractional format": `{"format":1.5}`, "format in words": `{"format":"one"}`,
		"cut off": `{"format":1,"si`,
	}
	for _, g := range goldenRecords() {
		for name, text := range bad {
			data := []byte(text)
			if strings.HasPrefix(g.file, "manifest") {
				data = compress(t, text)
			}
			if strings.HasPrefix(g.file, "metadata") {
				// The map itself comes from the S3 client; what we put into it can be anything.
				data, _ = json.Marshal(map[string]string{MetadataFormat: "1", MetadataRecord: text, MetadataInstrument: "allsky-1"})
			}
			if got, err := g.decode(data); !errors.Is(err, ErrMalformed) {
				t.Errorf("%s, %s: got %v, %v; want ErrMalformed", g.file, name, got, err)
			}
		}
	}
}

// TestCutOff: no prefix of a record passes for a record.
func TestCutOff(t *testing.T) {
	for _, g := range goldenRecords() {
		if strings.HasPrefix(g.file, "receipt-refused") || strings.HasPrefix(g.file, "metadata") {
			continue // causes differ in length; metadata is a map
		}
		data, err := os.ReadFile(filepath.Join(goldenFolder, g.file))
		if err != nil {
			t.Fatal(err)
		}
		whole := len(data)
		if strings.HasSuffix(g.file, ".txt") {
			whole-- // a line is complete without its LF, the reader waits for that itself
		}
		for n := range whole {
			got, err := g.decode(data[:n])
			if err == nil && strings.HasPrefix(g.file, "telemetry") {
				continue // fields end where a datagram ends; its length is the message's
			}
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("first %d of %d bytes of %s: got %v, %v; want ErrMalformed", n, whole, g.file, got, err)
			}
		}
	}
}

func TestNoticeMustSayEnough(t *testing.T) {
	for name, change := range map[string]func(*Notice){
		"site": func(n *Notice) { n.Site = "" }, "instrument": func(n *Notice) { n.Instrument = "" },
		"id": func(n *Notice) { n.ID = "" }, "key": func(n *Notice) { n.Key = "" }, "state": func(n *Notice) { n.State = "" },
		"size": func(n *Notice) { n.Size = -1 }, "offset": func(n *Notice) { n.Offset = -1 }, "length": func(n *Notice) { n.Length = -1 },
	} {
		n := sampleNotice(sampleRaw(), "allsky-1")
		change(&n)
		data, err := Encode(n)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Decode[Notice](data); !errors.Is(err, ErrMalformed) {
			t.Errorf("bad %s: got %v, %v; want ErrMalformed", name, got, err)
		}
	}
}

func TestManifestMustAddUp(t *testing.T) {
	record, err := json.Marshal(sampleRaw())
	if err != nil {
		t.Fatal(err)
	}
	header := func(counts string) string {
		return `{"format":1,"site":"s","instrument":"i","day":"2026-11-21",` + counts + `,"writer":"w","incarnation":"x"}` + "\n"
	}
	line := string(record) + "\n"
	for name, text := range map[string]string{
		"one too few":       header(`"entries":2`) + line,
		"one too many":      header(`"entries":1`) + line + line,
		"wrong column":      header(`"entries":0,"duplicates":1`) + line,
		"made to add up":    header(`"entries":-1,"duplicates":2`) + line,
		"no record":         header(`"entries":1`) + "{}\n",
		"empty line":        header(`"entries":1`) + "\n" + line,
		"header twice":      header(`"entries":1`) + header(`"entries":0`),
		"line of 17 MiB":    header(`"entries":1`) + strings.Repeat(" ", 17<<20) + line,
		"header at the end": line + header(`"entries":1`),
	} {
		if _, err := DecodeManifest(bytes.NewReader(compress(t, text))); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %v; want ErrMalformed", name, err)
		}
	}
	if _, err := DecodeManifest(bytes.NewReader(compress(t, header(`"entries":1`)+line))); err != nil {
		t.Errorf("one record, one line: %v", err)
	}
}

// TestManifestFromAFailingStore: a connection that breaks says nothing about the manifest.
func TestManifestFromAFailingStore(t *testing.T) {
	data, err := samplePart().Encode()
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("connection reset")
	_, err = DecodeManifest(io.MultiReader(bytes.NewReader(data[:len(data)/2]), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || errors.Is(err, ErrMalformed) {
		t.Errorf("got %v; want %v and not ErrMalformed", err, broken)
	}
}

func TestTelemetryMalformed(t *testing.T) {
	field := func(b []byte, num protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), value)
	}
	number := func(b []byte, num protowire.Number, value uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), value)
	}
	header := AppendTelemetryHeader(nil, "mag-1", "raw")
	address := field(nil, fieldSourceAddress, []byte{192, 0, 2, 7})
	for name, message := range map[string][]byte{
		"datagram before the format": field(nil, fieldDatagram, address),
		"no source":                  field(bytes.Clone(header), fieldDatagram, number(nil, fieldSourcePort, 1)),
		"source of five bytes":       field(bytes.Clone(header), fieldDatagram, field(nil, fieldSourceAddress, make([]byte, 5))),
		"source port 65536":          field(bytes.Clone(header), fieldDatagram, number(bytes.Clone(address), fieldSourcePort, 65536)),
		"destination port 65536":     field(bytes.Clone(header), fieldDatagram, number(bytes.Clone(address), fieldDestinationPort, 65536)),
		"datagram cut off":           field(bytes.Clone(header), fieldDatagram, address[:len(address)-1]),
	} {
		if got, err := decodeTelemetry(message); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %v, %v; want ErrMalformed", name, got, err)
		}
	}
	newer := field(field(bytes.Clone(header), fieldDatagram, field(bytes.Clone(address), 77, []byte("new"))), 99, []byte("newer"))
	if got, err := decodeTelemetry(newer); err != nil || len(got.([]Datagram)) != 1 {
		t.Errorf("unknown fields are not skipped: %v, %v", got, err)
	}
}
