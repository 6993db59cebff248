// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/substorm/substorm/internal/wire"
)

// The head of an OASIS instrumentation packet, integers little-endian: magic,
// version, and what is not read here (an UUID, counters, a timestamp), then the
// lengths of the data and of the probe's name with its NUL. The name follows, filled
// up to a multiple of eight, and then the data.
const (
	oasisHead    = 48
	oasisVersion = 1 // the first of the two numbers
	oasisData    = 40
	oasisName    = 44
	oasisAlign   = 8
	maxOASIS     = 1 << 20
)

var oasisMagic = []byte("EISA")

// oasisLayout reads packets of probes. Its fields lie in the data.
type oasisLayout struct {
	d      *Decoder
	fields []binaryField
	least  int
	probe  []byte
}

func newOASIS(d *Decoder) (layout, error) {
	if d.entry.Time.Source != wire.TimeReceived {
		return nil, fmt.Errorf("the time in a packet of OASIS is not known: the source of times must be %s", wire.TimeReceived)
	}
	o := &oasisLayout{d: d, probe: []byte(d.entry.Payload.Probe)}
	var err error
	o.fields, o.least, err = newFields(d)
	return o, err
}

func (o *oasisLayout) payload(r *run, payload []byte) {
	name, data, err := oasisPacket(payload)
	if err != nil {
		r.skip("%w", err)
		return
	}
	if len(o.probe) > 0 && !bytes.Equal(o.probe, name) {
		return // another probe's
	}
	if len(data) < o.least {
		r.skip("probe %s: %d bytes of data: the minimum is %d", name, len(data), o.least)
		return
	}
	r.start()
	for i := range o.fields {
		if err := o.fields[i].set(r, &o.d.parameters[i], data); err != nil {
			r.skip("probe %s: parameter %s: %w", name, o.d.parameters[i].Name, err)
			return
		}
	}
	r.emitUntimed()
}

func (o *oasisLayout) read(r *run, in io.Reader) error { return readAll(r, o, in, maxOASIS) }

// oasisPacket returns the probe's name and the data of a packet.
func oasisPacket(b []byte) (name, data []byte, err error) {
	if len(b) < oasisHead || !bytes.HasPrefix(b, oasisMagic) {
		return nil, nil, errors.New("not a packet of OASIS")
	}
	if v := b[len(oasisMagic)]; v != oasisVersion {
		return nil, nil, fmt.Errorf("a packet of the unknown OASIS version %d.%d", v, b[len(oasisMagic)+1])
	}
	length := uint64(binary.LittleEndian.Uint32(b[oasisData:]))
	named := uint64(binary.LittleEndian.Uint32(b[oasisName:]))
	at := oasisHead + (named+oasisAlign-1)/oasisAlign*oasisAlign
	if at+length > uint64(len(b)) {
		return nil, nil, fmt.Errorf("a packet of %d bytes that declares %d", len(b), at+length)
	}
	name, _, _ = bytes.Cut(b[oasisHead:oasisHead+named], []byte{0})
	return name, b[at : at+length], nil
}
