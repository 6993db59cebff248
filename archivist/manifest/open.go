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
	// maxLoose records of open parts are held as they are; at some 500 bytes each it is
	// 4 MiB. Where there are more they are squeezed: a thousand instruments at 1 Hz list
	// 60,000 in the minute of a part.
	maxLoose = 8192
	// maxSqueezed is how much those may take, in bytes, until parts close early: at some
	// 110 bytes each 75,000 records.
	maxSqueezed = 8 << 20
	// leastBlock records of a day are squeezed at a time: fewer gain nothing.
	leastBlock = 4
)

// openPart is what is listed of a day and in no closed part yet.
type openPart struct {
	// blocks hold the older records, as lines of JSON that are compressed together;
	// squeezed is how many those are, and loose are the others.
	blocks   [][]byte
	squeezed int
	loose    []wire.Record
}

func (o *openPart) len() int { return o.squeezed + len(o.loose) }

func (o *openPart) clear() { *o = openPart{loose: o.loose[:0]} }

// squeeze compresses the loose records, and returns how many bytes they take now.
func (o *openPart) squeeze() (int, error) {
	if len(o.loose) < leastBlock {
		return 0, nil
	}
	block, err := encodeBlock(o.loose)
	if err != nil {
		return 0, err
	}
	o.blocks = append(o.blocks, block)
	o.squeezed += len(o.loose)
	clear(o.loose) // so that nothing is held by what is left behind
	o.loose = o.loose[:0]
	return len(block), nil
}

// change calls f for each record, which may change it, and returns by how many bytes the
// squeezed ones grew.
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
	for i := range o.loose {
		f(&o.loose[i])
	}
	return grown, nil
}

func encodeBlock(records []wire.Record) ([]byte, error) {
	lines, err := json.Marshal(records)
	if err != nil {
		return nil, fmt.Errorf("squeeze an open part: %w", err)
	}
	block := squeezer().EncodeAll(lines, nil)
	return append(make([]byte, 0, len(block)), block...), nil
}

func decodeBlock(block []byte) ([]wire.Record, error) {
	lines, err := unsqueezer().DecodeAll(block, nil)
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
		return o.loose, nil
	}
	all := make([]wire.Record, 0, o.len())
	for _, block := range o.blocks {
		records, err := decodeBlock(block)
		if err != nil {
			return nil, err
		}
		all = append(all, records...)
	}
	return append(all, o.loose...), nil
}

// Each holds some hundred KiB.
var (
	squeezer = sync.OnceValue(func() *zstd.Encoder {
		z, _ := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1)) // these options are no errors
		return z
	})
	unsqueezer = sync.OnceValue(func() *zstd.Decoder {
		z, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
		return z
	})
)

// squeeze makes room for more records in open parts.
func (w *Writer) squeeze() error {
	for _, d := range w.days {
		n, err := d.open.squeeze()
		if err != nil {
			return err
		}
		w.squeezed += n
	}
	w.loose = 0
	for _, d := range w.days {
		w.loose += len(d.open.loose)
	}
	return nil
}

// full says whether parts must be closed before their time: nothing more can be
// squeezed, it takes too much by now, or too many change objects, which are held twice.
func (w *Writer) full() (bool, error) {
	if w.changes >= maxLoose {
		return true, nil
	}
	if w.loose < maxLoose {
		return false, nil
	}
	if err := w.squeeze(); err != nil {
		return false, err
	}
	return w.squeezed >= maxSqueezed || w.loose >= maxLoose/2, nil
}
