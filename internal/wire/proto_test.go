// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// telemetryDescriptor compiles telemetry.proto, as a reader without Substorm would.
func telemetryDescriptor(t *testing.T) protoreflect.MessageDescriptor {
	t.Helper()
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{"."}}}
	files, err := compiler.Compile(context.Background(), "telemetry.proto")
	if err != nil {
		t.Fatal(err)
	}
	return files[0].Messages().ByName("Telemetry")
}

// TestTelemetryReadsByItsSchema: a generated protobuf reader sees what we wrote.
func TestTelemetryReadsByItsSchema(t *testing.T) {
	m := dynamicpb.NewMessage(telemetryDescriptor(t))
	if err := (proto.UnmarshalOptions{}).Unmarshal(sampleTelemetry(), m); err != nil {
		t.Fatal(err)
	}
	get := func(m protoreflect.Message, name protoreflect.Name) protoreflect.Value {
		return m.Get(m.Descriptor().Fields().ByName(name))
	}
	if get(m, "format").Uint() != Format || get(m, "instrument").String() != "mag-1" || get(m, "channel").String() != "raw" {
		t.Errorf("header reads as %v", m)
	}
	var got []Datagram
	list := get(m, "datagrams").List()
	for i := range list.Len() {
		d := list.Get(i).Message()
		address, ok := netip.AddrFromSlice(get(d, "source_address").Bytes())
		if !ok {
			t.Fatalf("datagram %d: %v", i, d)
		}
		got = append(got, Datagram{
			ReceivedAt:      time.Unix(0, get(d, "received_unix_nano").Int()).UTC(),
			Source:          netip.AddrPortFrom(address, uint16(get(d, "source_port").Uint())),
			DestinationPort: uint16(get(d, "destination_port").Uint()),
			Payload:         get(d, "payload").Bytes(),
		})
		if n := len(d.GetUnknown()); n > 0 {
			t.Errorf("datagram %d holds %d bytes that telemetry.proto does not know", i, n)
		}
	}
	if diff := cmp.Diff(sampleDatagrams(), got, comparing); diff != "" {
		t.Error(diff)
	}
	if n := len(m.GetUnknown()); n > 0 {
		t.Errorf("the message holds %d bytes that telemetry.proto does not know", n)
	}
}

// TestTelemetryOfAnotherWriter: we read what a generated protobuf writer wrote.
func TestTelemetryOfAnotherWriter(t *testing.T) {
	m := dynamicpb.NewMessage(telemetryDescriptor(t))
	if err := proto.Unmarshal(sampleTelemetry(), m); err != nil {
		t.Fatal(err)
	}
	rewritten, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeTelemetry(rewritten)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sampleDatagrams(), got, comparing); diff != "" {
		t.Error(diff)
	}
}
