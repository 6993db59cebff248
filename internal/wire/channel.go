// SPDX-License-Identifier: Apache-2.0

package wire

// ChannelEntry is one of Instrument.spec.channels: what the payloads of a channel
// hold. Defaults are filled in.
type ChannelEntry struct {
	// Name is a DNS label, and once in an Instrument.
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`

	// Datagrams is the channel of telemetry whose datagrams are the payloads; empty:
	// objects are, those whose published path ends in Suffix.
	Datagrams string `json:"datagrams,omitempty"`
	Suffix    string `json:"suffix,omitempty"`

	Payload PayloadEntry     `json:"payload"`
	Time    ChannelTimeEntry `json:"time"`
	// CadenceMillis is the time between two samples; 0: unknown.
	CadenceMillis int64 `json:"cadenceMillis,omitempty"`
	// UnitsSchema is what the units of all parameters follow, as HAPI calls it; empty:
	// nothing in particular.
	UnitsSchema string           `json:"unitsSchema,omitempty"`
	Parameters  []ParameterEntry `json:"parameters"`
}

// The types of payloads, spelled as in the Instrument.
const (
	PayloadCSV      = "CSV"
	PayloadJSON     = "JSON"
	PayloadBinary   = "Binary"
	PayloadIAGA2002 = "IAGA2002"
	PayloadOASIS    = "OASIS"
)

// PayloadEntry says how a payload is laid out.
type PayloadEntry struct {
	Type string `json:"type"`

	// CSV has the character between two columns, whether numbers and times may have a decimal comma, with what lines begin that are
	// none, and how many lines stand before the first.
	Separator    string `json:"separator,omitempty"`
	DecimalComma bool   `json:"decimalComma,omitempty"`
	Comment      string `json:"comment,omitempty"`
	SkipLines    int    `json:"skipLines,omitempty"`

	// Records of JSON is a JSON pointer (RFC 6901) to the records; empty: the
	// payload itself.
	Records string `json:"records,omitempty"`

	// For Binary: ByteOrder is LittleEndian or BigEndian (also for OASIS), Header how
	// many bytes stand before the first record, Record how many a record has; 0: all that
	// follow are one.
	ByteOrder string `json:"byteOrder,omitempty"`
	Header    int    `json:"header,omitempty"`
	Record    int    `json:"record,omitempty"`

	// Reported of IAGA2002 are the letters of the elements, in their order, where no
	// header says so.
	Reported string `json:"reported,omitempty"`

	// Probe of OASIS is the name of the probe whose packets are read; empty: all are.
	Probe string `json:"probe,omitempty"`
}

// Values of PayloadEntry.ByteOrder.
const (
	LittleEndian = "LittleEndian"
	BigEndian    = "BigEndian"
)

// Values of ChannelTimeEntry's members, spelled as in the Instrument.
const (
	TimeReceived = "Received"
	TimePayload  = "Payload"

	TimeISO8601          = "ISO8601"
	TimeUnixSeconds      = "UnixSeconds"
	TimeUnixMilliseconds = "UnixMilliseconds"
	TimeUnixMicroseconds = "UnixMicroseconds"
	TimeUnixNanoseconds  = "UnixNanoseconds"

	PrecisionSeconds      = "Seconds"
	PrecisionMilliseconds = "Milliseconds"
	PrecisionMicroseconds = "Microseconds"
	PrecisionNanoseconds  = "Nanoseconds"
)

// ChannelTimeEntry says when a sample was observed.
type ChannelTimeEntry struct {
	// Source is TimeReceived or TimePayload.
	Source string `json:"source"`
	// Format of a time in the payload; IAGA2002 has its own.
	Format string `json:"format,omitempty"`
	// Columns of CSV, from 1; two are a date and a time of day.
	Columns []int `json:"columns,omitempty"`
	// Path of JSON is a JSON pointer within the record.
	Path string `json:"path,omitempty"`
	// Offset of Binary within the record, and Encoding.
	Offset   int    `json:"offset,omitempty"`
	Encoding string `json:"encoding,omitempty"`

	// Precision of the times.
	Precision string `json:"precision"`
	// Location is where in the time of measurement the sample's time lies: begin,
	// center, end or other, as HAPI calls it.
	Location string `json:"location"`
	// MaxDelayMillis is how far a time in the payload may be from the time of receipt.
	MaxDelayMillis int64 `json:"maxDelayMillis,omitempty"`
}

// The types of parameters, spelled as in the Instrument.
const (
	ParameterDouble  = "Double"
	ParameterInteger = "Integer"
	ParameterString  = "String"
)

// The encodings of numbers and text in binary payloads, spelled as in the Instrument.
const (
	EncodingInt8    = "Int8"
	EncodingUInt8   = "UInt8"
	EncodingInt16   = "Int16"
	EncodingUInt16  = "UInt16"
	EncodingInt32   = "Int32"
	EncodingUInt32  = "UInt32"
	EncodingInt64   = "Int64"
	EncodingUInt64  = "UInt64"
	EncodingFloat32 = "Float32"
	EncodingFloat64 = "Float64"
	EncodingText    = "Text"
)

// ParameterEntry is something that is measured.
type ParameterEntry struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Units; empty for what has none.
	Units string `json:"units,omitempty"`
	// Type is ParameterDouble, ParameterInteger (32 bits, signed) or ParameterString
	// of at most Length bytes.
	Type   string `json:"type"`
	Length int    `json:"length,omitempty"`
	// Size of each dimension of an array; empty: one value.
	Size []int `json:"size,omitempty"`
	// Fill stands for a value that is missing; nil: none may be.
	Fill *string `json:"fill,omitempty"`

	// Column of CSV, from 1; an array's values stand in this one and those that follow.
	Column int `json:"column,omitempty"`
	// Path of JSON is a JSON pointer within the record.
	Path string `json:"path,omitempty"`
	// Offset of Binary within the record, of OASIS within the data, and Encoding; an
	// array's values follow each other.
	Offset   int    `json:"offset,omitempty"`
	Encoding string `json:"encoding,omitempty"`
	// Components of IAGA2002 are the elements: their letters, or all of their names;
	// as many as the parameter has values.
	Components []string `json:"components,omitempty"`
}

// AboutEntry is what is published about an Instrument with its data.
type AboutEntry struct {
	Type string `json:"type"`
	// Latitude and Longitude in degrees, as decimal numbers; empty if unknown.
	Latitude       string `json:"latitude,omitempty"`
	Longitude      string `json:"longitude,omitempty"`
	AltitudeMeters *int32 `json:"altitudeMeters,omitempty"`
	// Contact is a person to contact: a name, and an address in angle brackets.
	Contact string `json:"contact,omitempty"`
}
