// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/substorm/substorm/internal/wire"
)

const (
	// maxRaw records of open parts are held as they are; at some 500 bytes each it is 4 MiB. If there are more, they
	// are compressed: a thousand instruments at 1 Hz list 60,000 in the minute of a part.
	maxRaw = 8192
	// maxCompressed is how much those may take, in bytes, until parts close early: at some
	// 110 bytes each 75,000 records.
	maxCompressed = 8 << 20
	// leastBlock records of a day are compressed at a time: fewer gain nothing.
	leastBlock = 4
)

// openPart is what is listed of a day and in no closed part yet.
type openPart struct {
	// blocks hold the older records, as lines of JSON that are compressed together;
	// compressed is how many those are, and raw are the others.
	blocks     [][]byte
	compressed int
	raw        []wire.Record
}

func (o *openPart) len() int { return o.compressed + len(o.raw) }

func (o *openPart) clear() { *o = openPart{raw: o.raw[:0]} }

// compress compresses the raw records, and returns how many bytes they take now.
func (o *openPart) compress() (int, error) {
	if len(o.raw) < leastBlock {
		return 0, nil
	}
	block, err := encodeBlock(o.raw)
	if err != nil {
		return 0, err
	}
	o.blocks = append(o.blocks, block)
	o.compressed += len(o.raw)
	clear(o.raw) // so that nothing is held by what is left behind
	o.raw = o.raw[:0]
	return len(block), nil
}

// change calls f for each record, which may change it, and returns by how many bytes the
// compressed ones grew.
func (o *openPart) change(f func(*wire.Record)) (grown int, err error) {
	for i, block := range o.blocks {
		records, err := decodeBlock(block)
		if err != nil {
			return grown, err
		}
		for j := range records {
			f(&records[j])
		}
		if o.blocks[i], err = encodeBlock(records); err != nil {
			return grown, err
		}
		grown += len(o.blocks[i]) - len(block)
	}
	for i := range o.raw {
		f(&o.raw[i])
	}
	return grown, nil
}

func encodeBlock(records []wire.Record) ([]byte, error) {
	lines, err := json.Marshal(records)
	if err != nil {
		return nil, fmt.Errorf("compress an open part: %w", err)
	}
	block := compressor().EncodeAll(lines, nil)
	return append(make([]byte, 0, len(block)), block...), nil
}

func decodeBlock(block []byte) ([]wire.Record, error) {
	lines, err := decompressor().DecodeAll(block, nil)
	if err != nil {
		return nil, fmt.Errorf("read an open part: %w", err)
	}
	var records []wire.Record
	if err := json.Unmarshal(lines, &records); err != nil {
		return nil, fmt.Errorf("read an open part: %w", err)
	}
	return records, nil
}

// all returns the records in the order in which they were listed. They may share
// memory with the part until it is cleared.
func (o *openPart) all() ([]wire.Record, error) {
	if len(o.blocks) == 0 {
		return o.raw, nil
	}
	all := make([]wire.Record, 0, o.len())
	for _, block := range o.blocks {
		records, err := decodeBlock(block)
		if err != nil {
			return nil, err
		}
		all = append(all, records...)
	}
	return append(all, o.raw...), nil
}

// Each holds some hundred KiB.
var (
	compressor = sync.OnceValue(func() *zstd.Encoder {
		z, _ := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1)) // these options are no errors
		return z
	})
	decompressor = sync.OnceValue(func() *zstd.Decoder {
		z, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
		return z
	})
)

// compress makes space for more records in open parts.
func (w *Writer) compress() error {
	for _, d := range w.days {
		n, err := d.open.compress()
		if err != nil {
			return err
		}
		w.compressed += n
	}
	w.raw = 0
	for _, d := range w.days {
		w.raw += len(d.open.raw)
	}
	return nil
}

// full says whether parts must be closed before their time: nothing more can be
// compressed, it takes too much by now, or too many change objects, which are held twice.
func (w *Writer) full() (bool, error) {
	if w.changes >= maxRaw {
		return true, nil
	}
	if w.raw < maxRaw {
		return false, nil
	}
	if err := w.compress(); err != nil {
		return false, err
	}
	return w.compressed >= maxCompressed || w.raw >= maxRaw/2, nil
}
