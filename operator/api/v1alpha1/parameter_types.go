// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Parameter is something that is measured, and where in a record it stands: the channel's
// payload.type says which of csv, json, binary, iaga2002 and oasis is set.
// +kubebuilder:validation:XValidation:rule="has(self.length) == (self.type == 'String')",message="length is set exactly when type is String",fieldPath=".length"
// +kubebuilder:validation:XValidation:rule="!has(self.binary) || (self.binary.encoding == 'Text') == (self.type == 'String')",message="the encoding Text is that of parameters of type String",fieldPath=".binary.encoding"
// +kubebuilder:validation:XValidation:rule="!has(self.oasis) || (self.oasis.encoding == 'Text') == (self.type == 'String')",message="the encoding Text is that of parameters of type String",fieldPath=".oasis.encoding"
// +kubebuilder:validation:XValidation:rule="!has(self.fill) || self.type != 'Double' || self.fill == 'NaN' || self.fill.matches('^[-+]?[0-9]+([.][0-9]*)?([eE][-+]?[0-9]{1,3})?$')",message="the fill of a Double is a decimal number or NaN",fieldPath=".fill"
// +kubebuilder:validation:XValidation:rule="!has(self.fill) || self.type != 'Integer' || (self.fill.matches('^-?[0-9]{1,10}$') && int(self.fill) >= -2147483648 && int(self.fill) <= 2147483647)",message="the fill of an Integer is an integer of 32 bits",fieldPath=".fill"
// +kubebuilder:validation:XValidation:rule="!has(self.fill) || self.type != 'String' || !has(self.length) || size(self.fill) <= self.length",message="the fill of a String is no longer than its length",fieldPath=".fill"
// +kubebuilder:validation:XValidation:rule="!has(self.iaga2002) || has(self.size) || size(self.iaga2002.components) == 1",message="a parameter without a size has one component",fieldPath=".iaga2002.components"
// +kubebuilder:validation:XValidation:rule="!has(self.iaga2002) || !has(self.size) || (size(self.size) == 1 && self.size[0] == size(self.iaga2002.components))",message="size says how many components there are",fieldPath=".size"
type Parameter struct {
	// Name of the parameter; it begins with a letter. "Time" is that of the sample.
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9_]*$`
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self != 'Time'",message="Time is the name of the sample's time"
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name,omitempty"`

	// Description in one sentence.
	// +kubebuilder:validation:MaxLength=200
	// +optional
	Description string `json:"description,omitempty"`

	// Units of the values, as in nT. Default: dimensionless.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Units string `json:"units,omitempty"`

	// Type of the values. Double: IEEE 754, 64 bits. Integer: 32 bits, signed.
	// +kubebuilder:default=Double
	// +optional
	Type ParameterType `json:"type,omitempty"`

	// Length is how many bytes a String has at most.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	// +optional
	Length *int32 `json:"length,omitempty"`

	// Size of each dimension of an array. Default: the parameter is one value.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=1024
	// +listType=atomic
	// +optional
	Size []int32 `json:"size,omitempty"`

	// Fill stands for values that are missing. Default: a sample without the value
	// counts as undecodable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Fill *string `json:"fill,omitempty"`

	// CSV says where the value stands in a line, with a payload of type CSV.
	// +optional
	CSV *CSVPlace `json:"csv,omitempty"`

	// JSON says where the value stands in a record, with a payload of type JSON.
	// +optional
	JSON *JSONPlace `json:"json,omitempty"`

	// Binary says where the value stands in a record, with a payload of type Binary.
	// +optional
	Binary *BinaryPlace `json:"binary,omitempty"`

	// IAGA2002 says which elements the values are, with a payload of type IAGA2002.
	// +optional
	IAGA2002 *IAGA2002Place `json:"iaga2002,omitempty"`

	// OASIS says where the value stands in the data of a packet, with a payload of type OASIS.
	// +optional
	OASIS *BinaryPlace `json:"oasis,omitempty"`
}

// CSVPlace is where a value stands in a line of columns.
// +kubebuilder:object:generate=false
type CSVPlace struct {
	// Column that holds the value, counted from 1. Of an array it is the column of the first
	// value; the others follow it.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	// +required
	Column int32 `json:"column,omitempty"`
}

// JSONPlace is where a value stands in a record of JSON.
// +kubebuilder:object:generate=false
type JSONPlace struct {
	// Path is a JSON pointer (RFC 6901) to the value, or array, within a record: /field/x,
	// or /0 where records are arrays.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^(/([^/~]|~[01])*)+$`
	// +required
	Path string `json:"path,omitempty"`
}

// BinaryPlace is where a value stands in a binary record, and how it is written.
type BinaryPlace struct {
	// Offset of the value in bytes, from the beginning of the record or of the packet's data; the
	// values of an array follow each other.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1048575
	// +required
	Offset *int32 `json:"offset,omitempty"`

	// Encoding of the value: a signed or unsigned integer, a floating-point number of
	// IEEE 754, or text of the parameter's length.
	// +required
	Encoding Encoding `json:"encoding,omitempty"`
}

// IAGA2002Place is which columns of IAGA-2002 are the values.
type IAGA2002Place struct {
	// Components that are the values: the letters of the elements (H), or their columns
	// (BOUH).
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=8
	// +kubebuilder:validation:items:Pattern=`^[A-Z0-9]+$`
	// +listType=atomic
	// +required
	Components []string `json:"components,omitempty"`
}

// ParameterType is what the values of a parameter are.
// +kubebuilder:validation:Enum=Double;Integer;String
type ParameterType string

// The values of ParameterType.
const (
	ParameterDouble  ParameterType = "Double"
	ParameterInteger ParameterType = "Integer"
	ParameterString  ParameterType = "String"
)

// Encoding is how a value is written in binary: signed and unsigned integers,
// IEEE 754, and text of the parameter's length.
// +kubebuilder:validation:Enum=Int8;UInt8;Int16;UInt16;Int32;UInt32;Int64;UInt64;Float32;Float64;Text
type Encoding string

// The values of Encoding.
const (
	EncodingInt8    Encoding = "Int8"
	EncodingUInt8   Encoding = "UInt8"
	EncodingInt16   Encoding = "Int16"
	EncodingUInt16  Encoding = "UInt16"
	EncodingInt32   Encoding = "Int32"
	EncodingUInt32  Encoding = "UInt32"
	EncodingInt64   Encoding = "Int64"
	EncodingUInt64  Encoding = "UInt64"
	EncodingFloat32 Encoding = "Float32"
	EncodingFloat64 Encoding = "Float64"
	EncodingText    Encoding = "Text"
)
