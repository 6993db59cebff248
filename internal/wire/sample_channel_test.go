// SPDX-License-Identifier: Apache-2.0

package wire

// sampleDecoded has channels whose payloads are declared.
func sampleDecoded() InstrumentEntry {
	e := sampleFramings()
	e.Listeners = e.Listeners[:1]
	e.About = &AboutEntry{Type: "Magnetometer", Latitude: "69.66", Longitude: "18.94", AltitudeMeters: ptr(int32(85)), Contact: "Observatory <mag@example.org>"}
	e.Channels = []ChannelEntry{
		{Name: "field", Description: "The field's three components.", Datagrams: "raw", CadenceMillis: 1000, UnitsSchema: "udunits2",
			Payload: PayloadEntry{Type: PayloadCSV, Separator: ";", DecimalComma: true, Comment: "#", SkipLines: 1},
			Time: ChannelTimeEntry{Source: TimePayload, Format: TimeISO8601, Columns: []int{1, 2}, Precision: PrecisionMilliseconds,
				Location: "center", MaxDelayMillis: 3_600_000},
			Parameters: []ParameterEntry{
				{Name: "B", Units: "nT", Type: ParameterDouble, Size: []int{3}, Fill: ptr("-1e31"), Column: 3},
				{Name: "mode", Description: "How it measures.", Type: ParameterString, Length: 8, Column: 6}}},
		{Name: "house", Datagrams: "raw",
			Payload: PayloadEntry{Type: PayloadJSON, Records: "/data"},
			Time: ChannelTimeEntry{Source: TimePayload, Format: TimeUnixMilliseconds, Path: "/t", Precision: PrecisionNanoseconds,
				Location: "center", MaxDelayMillis: 3_600_000},
			Parameters: []ParameterEntry{{Name: "temperature", Units: "degC", Type: ParameterDouble, Fill: ptr("NaN"), Path: "/inside/0"}}},
		{Name: "fast", Datagrams: "fast",
			Payload: PayloadEntry{Type: PayloadBinary, ByteOrder: BigEndian, Header: 4, Record: 16},
			Time: ChannelTimeEntry{Source: TimePayload, Format: TimeUnixSeconds, Offset: 12, Encoding: EncodingUInt32,
				Precision: PrecisionNanoseconds, Location: "begin", MaxDelayMillis: 3_600_000},
			Parameters: []ParameterEntry{{Name: "B", Type: ParameterDouble, Size: []int{3}, Encoding: EncodingFloat32}}},
		{Name: "day", Suffix: ".min",
			Payload:    PayloadEntry{Type: PayloadIAGA2002, Reported: "HDZF"},
			Time:       ChannelTimeEntry{Source: TimePayload, Precision: PrecisionMilliseconds, Location: "center", MaxDelayMillis: 172_800_000},
			Parameters: []ParameterEntry{{Name: "H", Units: "nT", Type: ParameterDouble, Fill: ptr("99999.00"), Components: []string{"H"}}}},
		{Name: "probe", Datagrams: "probes",
			Payload:    PayloadEntry{Type: PayloadOASIS, ByteOrder: LittleEndian, Probe: "ProcessorProbe_SmokeTest"},
			Time:       ChannelTimeEntry{Source: TimeReceived, Precision: PrecisionNanoseconds, Location: "other"},
			Parameters: []ParameterEntry{{Name: "load", Type: ParameterInteger, Offset: 8, Encoding: EncodingUInt64}}},
	}
	return e
}
