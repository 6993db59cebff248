// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Channel declares what the payloads of an instrument hold, so that its data can be
// read by time and parameter (HAPI). What does not decode is archived all the same.
// +kubebuilder:validation:XValidation:rule="self.payload.type != 'CSV' || self.parameters.all(p, has(p.csv))",message="with a payload of type CSV each parameter has csv",reason=FieldValueRequired,fieldPath=".parameters"
// +kubebuilder:validation:XValidation:rule="self.payload.type == 'CSV' || !self.parameters.exists(p, has(p.csv))",message="csv is of parameters in a payload of type CSV",reason=FieldValueForbidden,fieldPath=".parameters"
// +kubebuilder:validation:XValidation:rule="self.payload.type != 'JSON' || self.parameters.all(p, has(p.json))",message="with a payload of type JSON each parameter has json",reason=FieldValueRequired,fieldPath=".parameters"
// +kubebuilder:validation:XValidation:rule="self.payload.type == 'JSON' || !self.parameters.exists(p, has(p.json))",message="json is of parameters in a payload of type JSON",reason=FieldValueForbidden,fieldPath=".parameters"
// +kubebuilder:validation:XValidation:rule="self.payload.type != 'Binary' || self.parameters.all(p, has(p.binary))",message="with a payload of type Binary each parameter has binary",reason=FieldValueRequired,fieldPath=".parameters"
// +kubebuilder:validation:XValidation:rule="self.payload.type == 'Binary' || !self.parameters.exists(p, has(p.binary))",message="binary is of parameters in a payload of type Binary",reason=FieldValueForbidden,fieldPath=".parameters"
// +kubebuilder:validation:XValidation:rule="self.payload.type != 'IAGA2002' || self.parameters.all(p, has(p.iaga2002))",message="with a payload of type IAGA2002 each parameter has iaga2002",reason=FieldValueRequired,fieldPath=".parameters"
// +kubebuilder:validation:XValidation:rule="self.payload.type == 'IAGA2002' || !self.parameters.exists(p, has(p.iaga2002))",message="iaga2002 is of parameters in a payload of type IAGA2002",reason=FieldValueForbidden,fieldPath=".parameters"
// +kubebuilder:validation:XValidation:rule="self.payload.type != 'OASIS' || self.parameters.all(p, has(p.oasis))",message="with a payload of type OASIS each parameter has oasis",reason=FieldValueRequired,fieldPath=".parameters"
// +kubebuilder:validation:XValidation:rule="self.payload.type == 'OASIS' || !self.parameters.exists(p, has(p.oasis))",message="oasis is of parameters in a payload of type OASIS",reason=FieldValueForbidden,fieldPath=".parameters"
// +kubebuilder:validation:XValidation:rule="self.payload.type != 'OASIS' || !has(self.time.source) || self.time.source == 'Received'",message="the time in a packet of OASIS is not known: with it time.source is Received",fieldPath=".time.source"
// +kubebuilder:validation:XValidation:rule="self.payload.type != 'IAGA2002' || (has(self.time.source) && self.time.source == 'Payload')",message="lines of IAGA-2002 have their time: with them time.source is Payload",fieldPath=".time.source"
// +kubebuilder:validation:XValidation:rule="self.payload.type != 'IAGA2002' || !has(self.time.payload)",message="lines of IAGA-2002 have their time: leave time.payload out",reason=FieldValueForbidden,fieldPath=".time.payload"
// +kubebuilder:validation:XValidation:rule="self.payload.type in ['IAGA2002', 'OASIS'] || !has(self.time.source) || self.time.source != 'Payload' || has(self.time.payload)",message="with time.source Payload set time.payload: it says where a record's time stands",reason=FieldValueRequired,fieldPath=".time.payload"
// +kubebuilder:validation:XValidation:rule="!has(self.time.payload) || has(self.time.payload.csv) == (self.payload.type == 'CSV')",message="time.payload.csv is set exactly with a payload of type CSV",fieldPath=".time.payload.csv"
// +kubebuilder:validation:XValidation:rule="!has(self.time.payload) || has(self.time.payload.json) == (self.payload.type == 'JSON')",message="time.payload.json is set exactly with a payload of type JSON",fieldPath=".time.payload.json"
// +kubebuilder:validation:XValidation:rule="!has(self.time.payload) || has(self.time.payload.binary) == (self.payload.type == 'Binary')",message="time.payload.binary is set exactly with a payload of type Binary",fieldPath=".time.payload.binary"
// +kubebuilder:validation:XValidation:rule="self.payload.type != 'Binary' || !has(self.time.payload) || self.time.payload.format != 'ISO8601'",message="a time in a payload of type Binary is a number: time.payload.format is not ISO8601",fieldPath=".time.payload.format"
type Channel struct {
	// Name of the channel. HAPI calls its data <instrument>/<name>.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name,omitempty"`

	// Description of the data, in a few lines.
	// +kubebuilder:validation:MaxLength=1000
	// +optional
	Description string `json:"description,omitempty"`

	// Source says what the payloads are.
	// +required
	Source ChannelSource `json:"source,omitzero"`

	// Payload says how a payload is laid out.
	// +required
	Payload Payload `json:"payload,omitzero"`

	// Time says when a sample was observed.
	// +kubebuilder:default={}
	// +optional
	Time ChannelTime `json:"time,omitzero"`

	// Cadence is the time between two samples, which clients are told. At most 8784h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="cadence is longer than nothing"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8784h')",message="cadence is at most 8784h"
	// +optional
	Cadence *metav1.Duration `json:"cadence,omitempty"`

	// UnitsSchema is the convention that the units of all parameters follow. Default: none
	// in particular.
	// +optional
	UnitsSchema UnitsSchema `json:"unitsSchema,omitempty"`

	// Parameters that a sample has, in the order in which they are served.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	// +required
	Parameters []Parameter `json:"parameters,omitempty"`
}

// ChannelSource says what the payloads of a channel are. Type says which of the members
// datagrams and objects may be set; where that one is left out, its defaults hold.
// +kubebuilder:validation:XValidation:rule="!has(self.datagrams) || self.type == 'Datagrams'",message="datagrams is of sources of type Datagrams",reason=FieldValueForbidden,fieldPath=".datagrams"
// +kubebuilder:validation:XValidation:rule="!has(self.objects) || self.type == 'Objects'",message="objects is of sources of type Objects",reason=FieldValueForbidden,fieldPath=".objects"
type ChannelSource struct {
	// Type of the source. Datagrams: each datagram is a payload. Objects: each object is
	// one.
	// +required
	Type ChannelSourceType `json:"type,omitempty"`

	// Datagrams says which datagrams are payloads. Default: those of the channel raw.
	// +optional
	Datagrams *DatagramSource `json:"datagrams,omitempty"`

	// Objects says which objects are payloads. Default: all.
	// +optional
	Objects *ObjectSource `json:"objects,omitempty"`
}

// ChannelSourceType is what the payloads of a channel are.
// +kubebuilder:validation:Enum=Datagrams;Objects
type ChannelSourceType string

// The values of ChannelSourceType.
const (
	ChannelOfDatagrams ChannelSourceType = "Datagrams"
	ChannelOfObjects   ChannelSourceType = "Objects"
)

// WithDefaults returns the channel with the members that its types ask for, and in them the
// defaults of what is left out: those that the API server fills in where the member is there,
// and the precision that goes with the payload.
func (c *Channel) WithDefaults() Channel {
	is := *c.DeepCopy()
	is.Source, is.Payload = is.Source.WithDefaults(), is.Payload.WithDefaults()
	precision := PrecisionNanoseconds
	if is.Payload.Type == PayloadIAGA2002 {
		precision = PrecisionMilliseconds
	}
	is.Time.Source = cmp.Or(is.Time.Source, ChannelTimeReceived)
	is.Time.Precision = cmp.Or(is.Time.Precision, precision)
	is.Time.Location = cmp.Or(is.Time.Location, TimeCenter)
	is.Time.MaxDelay = cmp.Or(is.Time.MaxDelay, &metav1.Duration{Duration: time.Hour})
	for i := range is.Parameters {
		is.Parameters[i].Type = cmp.Or(is.Parameters[i].Type, ParameterDouble)
	}
	return is
}

// WithDefaults returns the source with the member of its type, and in it the defaults of what
// is left out.
func (s *ChannelSource) WithDefaults() ChannelSource {
	is := *s.DeepCopy()
	switch is.Type {
	case ChannelOfDatagrams:
		is.Datagrams = cmp.Or(is.Datagrams, &DatagramSource{})
		is.Datagrams.Channel = cmp.Or(is.Datagrams.Channel, DefaultChannel)
	case ChannelOfObjects:
		is.Objects = cmp.Or(is.Objects, &ObjectSource{})
	}
	return is
}

// WithDefaults returns the payload with the member of its type where all that is in it has
// defaults, and with these.
func (p *Payload) WithDefaults() Payload {
	is := *p.DeepCopy()
	switch is.Type {
	case PayloadCSV:
		is.CSV = cmp.Or(is.CSV, &CSVPayload{})
		is.CSV.Separator = cmp.Or(is.CSV.Separator, SeparatorComma)
		if is.CSV.Separator == SeparatorSemicolon {
			is.CSV.DecimalMark = cmp.Or(is.CSV.DecimalMark, DecimalComma)
		}
		is.CSV.Comment = cmp.Or(is.CSV.Comment, new("#"))
	case PayloadBinary:
		is.Binary = cmp.Or(is.Binary, &BinaryPayload{})
		is.Binary.ByteOrder = cmp.Or(is.Binary.ByteOrder, LittleEndian)
	}
	return is
}

// DatagramSource says which datagrams are payloads.
// +kubebuilder:object:generate=false
type DatagramSource struct {
	// Channel of the datagrams, as a listener with protocol UDP has it, now or in the past.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:default=raw
	// +optional
	Channel string `json:"channel,omitempty"`
}

// ObjectSource says which objects are payloads.
// +kubebuilder:object:generate=false
type ObjectSource struct {
	// NameSuffix is what the published names of the payloads end with: ".min". Default: all
	// objects are payloads.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	NameSuffix string `json:"nameSuffix,omitempty"`
}

// Payload says how a payload is laid out. Type says which of the members may be set; where
// that one is left out, its defaults hold.
// +kubebuilder:validation:XValidation:rule="self.type == 'CSV' || !has(self.csv)",message="csv is of payloads of type CSV",reason=FieldValueForbidden,fieldPath=".csv"
// +kubebuilder:validation:XValidation:rule="self.type == 'JSON' || !has(self.json)",message="json is of payloads of type JSON",reason=FieldValueForbidden,fieldPath=".json"
// +kubebuilder:validation:XValidation:rule="self.type == 'Binary' || !has(self.binary)",message="binary is of payloads of type Binary",reason=FieldValueForbidden,fieldPath=".binary"
// +kubebuilder:validation:XValidation:rule="self.type == 'IAGA2002' || !has(self.iaga2002)",message="iaga2002 is of payloads of type IAGA2002",reason=FieldValueForbidden,fieldPath=".iaga2002"
// +kubebuilder:validation:XValidation:rule="self.type == 'OASIS' || !has(self.oasis)",message="oasis is of payloads of type OASIS",reason=FieldValueForbidden,fieldPath=".oasis"
type Payload struct {
	// Type of the payload. CSV: lines of columns. JSON: objects, or arrays, one after
	// the other. Binary: records of fixed places. IAGA2002: the exchange format of
	// geomagnetic observatories, or its lines alone. OASIS: instrumentation packets.
	// +required
	Type PayloadType `json:"type,omitempty"`

	// CSV says how lines are read. Default: columns between commas, # before remarks.
	// +optional
	CSV *CSVPayload `json:"csv,omitempty"`

	// JSON says where records stand. Default: the payload is one, or an array of them.
	// +optional
	JSON *JSONPayload `json:"json,omitempty"`

	// Binary says where records stand. Default: the payload is one, little-endian.
	// +optional
	Binary *BinaryPayload `json:"binary,omitempty"`

	// IAGA2002 says what lines without a header hold.
	// +optional
	IAGA2002 *IAGA2002Payload `json:"iaga2002,omitempty"`

	// OASIS says which packets are read. Default: all.
	// +optional
	OASIS *OASISPayload `json:"oasis,omitempty"`
}

// PayloadType is how a payload is written.
// +kubebuilder:validation:Enum=CSV;JSON;Binary;IAGA2002;OASIS
type PayloadType string

// The values of PayloadType.
const (
	PayloadCSV      PayloadType = "CSV"
	PayloadJSON     PayloadType = "JSON"
	PayloadBinary   PayloadType = "Binary"
	PayloadIAGA2002 PayloadType = "IAGA2002"
	PayloadOASIS    PayloadType = "OASIS"
)

// CSVPayload says how lines of columns are read.
// +kubebuilder:validation:XValidation:rule="!has(self.decimalMark) || self.decimalMark != 'Comma' || self.separator != 'Comma'",message="decimalMark: Comma needs another separator between columns",fieldPath=".decimalMark"
type CSVPayload struct {
	// Separator between two columns. Blanks: one or more spaces or tabs.
	// +kubebuilder:default=Comma
	// +optional
	Separator Separator `json:"separator,omitempty"`

	// DecimalMark is what numbers and times may have before their decimals. With Comma, numbers with a point are read, too.
	// Default: Comma where the separator is Semicolon, Point elsewhere.
	// +optional
	DecimalMark DecimalMark `json:"decimalMark,omitempty"`

	// Comment is what remarks begin with: a line that begins with it is skipped. With "" no
	// line is a remark.
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:default="#"
	// +optional
	Comment *string `json:"comment,omitempty"`

	// SkipLines is how many lines at the beginning of each payload are skipped: its header.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	SkipLines int32 `json:"skipLines,omitempty"`
}

// Separator is what stands between two columns.
// +kubebuilder:validation:Enum=Comma;Semicolon;Tab;Blanks
type Separator string

// The values of Separator.
const (
	SeparatorComma     Separator = "Comma"
	SeparatorSemicolon Separator = "Semicolon"
	SeparatorTab       Separator = "Tab"
	SeparatorBlanks    Separator = "Blanks"
)

// DecimalMark is what stands between the whole part of a number and its decimals.
// +kubebuilder:validation:Enum=Point;Comma
type DecimalMark string

// The values of DecimalMark.
const (
	DecimalPoint DecimalMark = "Point"
	DecimalComma DecimalMark = "Comma"
)

// JSONPayload says where the records stand in a payload.
// +kubebuilder:object:generate=false
type JSONPayload struct {
	// Records is a JSON pointer (RFC 6901) to a record, or an array of them, as in
	// /data.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^(/([^/~]|~[01])*)+$`
	// +required
	Records string `json:"records,omitempty"`
}

// BinaryPayload says where the records stand in a payload.
type BinaryPayload struct {
	// ByteOrder of all numbers in a payload: which of their bytes comes first.
	// +kubebuilder:default=LittleEndian
	// +optional
	ByteOrder ByteOrder `json:"byteOrder,omitempty"`

	// HeaderBytes is how many bytes stand before the first record; they are skipped.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65536
	// +optional
	HeaderBytes int32 `json:"headerBytes,omitempty"`

	// RecordBytes is how long each record is. Default: all that follows the header is one
	// record.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048576
	// +optional
	RecordBytes *int32 `json:"recordBytes,omitempty"`
}

// ByteOrder is which byte of a number comes first.
// +kubebuilder:validation:Enum=LittleEndian;BigEndian
type ByteOrder string

// The values of ByteOrder.
const (
	LittleEndian ByteOrder = "LittleEndian"
	BigEndian    ByteOrder = "BigEndian"
)

// IAGA2002Payload says what lines hold that no header describes.
// +kubebuilder:object:generate=false
type IAGA2002Payload struct {
	// Reported are the letters of the elements in their order, as the header's line of
	// this name has them: HDZF.
	// +kubebuilder:validation:Pattern=`^[A-Z]{1,4}$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4
	// +required
	Reported string `json:"reported,omitempty"`
}

// OASISPayload says which packets are read.
// +kubebuilder:object:generate=false
type OASISPayload struct {
	// Probe is the name of the probe whose packets are read. Packets of other probes are
	// skipped.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +required
	Probe string `json:"probe,omitempty"`
}

// ChannelTime says when a sample was observed. Source says whether payload may be set.
// +kubebuilder:validation:XValidation:rule="(has(self.source) && self.source == 'Payload') || !has(self.payload)",message="payload is of times with source Payload",reason=FieldValueForbidden,fieldPath=".payload"
type ChannelTime struct {
	// Source of the time. Received: when the payload was received; then it holds one
	// record. Payload: each record holds its time.
	// +kubebuilder:default=Received
	// +optional
	Source ChannelTimeSource `json:"source,omitempty"`

	// Payload says where in a record its time stands, with source Payload and a payload of
	// type CSV, JSON or Binary.
	// +optional
	Payload *PayloadTime `json:"payload,omitempty"`

	// Precision of the times that clients are told. What is finer is cut off, and samples
	// that have the same time after that count as one. Default: Milliseconds with IAGA2002,
	// otherwise Nanoseconds.
	// +optional
	Precision TimePrecision `json:"precision,omitempty"`

	// Location says where in a measurement its time lies: at its beginning, center or end.
	// Other: none of these, or nobody knows.
	// +kubebuilder:default=Center
	// +optional
	Location TimeLocation `json:"location,omitempty"`

	// MaxDelay is how far the time in a payload may be from when the payload was
	// received: so far data is looked for. Where a payload holds the data of a day,
	// it is longer than that.
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('8784h')",message="maxDelay is longer than nothing and at most 8784h"
	// +optional
	MaxDelay *metav1.Duration `json:"maxDelay,omitempty"`
}

// PayloadTime says where in a record its time stands, and how it is written. The channel's
// payload.type says which of csv, json and binary is set.
type PayloadTime struct {
	// Format of the time. ISO8601: 2026-11-21T12:00:00.5Z, or a part of it from the left;
	// the others are numbers since 1970.
	// +required
	Format TimeFormat `json:"format,omitempty"`

	// CSV says which columns of a line hold the time.
	// +optional
	CSV *CSVTime `json:"csv,omitempty"`

	// JSON says where the time stands in a record.
	// +optional
	JSON *JSONPlace `json:"json,omitempty"`

	// Binary says where the time stands in a record.
	// +optional
	Binary *BinaryTime `json:"binary,omitempty"`
}

// CSVTime is where the time stands in a line of columns.
type CSVTime struct {
	// Columns that hold the time, from 1; two are a date and a time of day.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=4096
	// +listType=atomic
	// +required
	Columns []int32 `json:"columns,omitempty"`
}

// BinaryTime is where the time stands in a binary record, and how it is written.
type BinaryTime struct {
	// Offset of the time in bytes, from the beginning of the record.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1048568
	// +required
	Offset *int32 `json:"offset,omitempty"`

	// Encoding of the time: what kind of number it is.
	// +kubebuilder:validation:XValidation:rule="self != 'Text'",message="a time is a number"
	// +required
	Encoding Encoding `json:"encoding,omitempty"`
}

// ChannelTimeSource is where a sample's time comes from.
// +kubebuilder:validation:Enum=Received;Payload
type ChannelTimeSource string

// The values of ChannelTimeSource.
const (
	ChannelTimeReceived ChannelTimeSource = "Received"
	ChannelTimePayload  ChannelTimeSource = "Payload"
)

// TimeFormat is how a time is written.
// +kubebuilder:validation:Enum=ISO8601;UnixSeconds;UnixMilliseconds;UnixMicroseconds;UnixNanoseconds
type TimeFormat string

// The values of TimeFormat.
const (
	TimeISO8601          TimeFormat = "ISO8601"
	TimeUnixSeconds      TimeFormat = "UnixSeconds"
	TimeUnixMilliseconds TimeFormat = "UnixMilliseconds"
	TimeUnixMicroseconds TimeFormat = "UnixMicroseconds"
	TimeUnixNanoseconds  TimeFormat = "UnixNanoseconds"
)

// TimePrecision is what a time is told to.
// +kubebuilder:validation:Enum=Seconds;Milliseconds;Microseconds;Nanoseconds
type TimePrecision string

// The values of TimePrecision.
const (
	PrecisionSeconds      TimePrecision = "Seconds"
	PrecisionMilliseconds TimePrecision = "Milliseconds"
	PrecisionMicroseconds TimePrecision = "Microseconds"
	PrecisionNanoseconds  TimePrecision = "Nanoseconds"
)

// TimeLocation is where in the time of a measurement its time lies. Other: none of
// these, or nobody knows.
// +kubebuilder:validation:Enum=Begin;Center;End;Other
type TimeLocation string

// The values of TimeLocation.
const (
	TimeBegin  TimeLocation = "Begin"
	TimeCenter TimeLocation = "Center"
	TimeEnd    TimeLocation = "End"
	TimeOther  TimeLocation = "Other"
)

// UnitsSchema is a convention of units.
// +kubebuilder:validation:Enum=UDUNITS2;Astropy3;CDFCluster
type UnitsSchema string

// The values of UnitsSchema.
const (
	UnitsUDUNITS2   UnitsSchema = "UDUNITS2"
	UnitsAstropy3   UnitsSchema = "Astropy3"
	UnitsCDFCluster UnitsSchema = "CDFCluster"
)
