// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"strings"
	"testing"
)

// TestMetadataFitsS3: user metadata may have 2 KB (S3 user guide, "Working with
// object metadata"), also with the longest names that resources can have.
func TestMetadataFitsS3(t *testing.T) {
	label := strings.Repeat("a", 63)
	r := sampleSegment()
	r.Segment.Channel, r.Segment.First, r.Segment.Last = label, 1<<63, 1<<64-1
	r.Segment.Messages, r.Segment.Datagrams, r.Segment.DatagramBytes = 1<<63, 1<<63, 1<<63
	r.Key = SegmentKey(label[:16], label, label, "2026-11-21", r.Segment.Epoch, r.Segment.First, r.Segment.Last)
	r.ID, r.Gateway, r.Incarnation, r.Size = r.Key, label, strings.Repeat("b", 32), 1<<62
	r.MediaType = "application/" + strings.Repeat("x", 115)
	r.ObservedFrom, r.ObservedTo = sampleRaw().ObservedFrom, sampleRaw().ObservedTo
	metadata, err := ObjectMetadata(Notice{Site: label[:16], Instrument: label, Record: r})
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for name, value := range metadata {
		size += len("x-amz-meta-") + len(name) + len(value)
		for i := range len(value) {
			if value[i] < ' ' || value[i] > '~' {
				t.Errorf("%s holds byte %#x, which an HTTP header may not", name, value[i])
			}
		}
	}
	if size > 2048 {
		t.Errorf("metadata of %d bytes, S3 takes 2048", size)
	}
}

// TestMetadataOfNamesFitsS3: the longest name of an object's longest record.
func TestMetadataOfNamesFitsS3(t *testing.T) {
	label := strings.Repeat("a", 63)
	for _, name := range []string{strings.Repeat("n", MaxSentName), strings.Repeat("é", MaxSentName/6), strings.Repeat("👾", MaxSentName/12)} {
		if err := CheckSentName(name); err != nil {
			t.Fatal(err)
		}
		r := sampleNamed()
		r.Name, r.Version, r.Size = name, 1<<20, 1<<50
		r.Key = NamedKey(label[:16], label, name, r.Version)
		r.ID, r.Supersedes = r.Key, r.Key
		r.Gateway, r.Incarnation, r.Source = label, strings.Repeat("b", 16), "[2001:0db8:0000:0000:0000:0000:0000:0001]:65535"
		r.MediaType = "application/" + strings.Repeat("x", 115)
		r.Port, r.Framing = 65535, FramingLengthPrefixed
		if !MetadataFits(Notice{Site: label[:16], Instrument: label, Record: r}) {
			t.Errorf("metadata of %q does not fit", name)
		}
		r.Path = strings.Repeat("p", 512)
		if MetadataFits(Notice{Site: label[:16], Instrument: label, Record: r}) {
			t.Error("metadata beyond 2 KB is said to fit")
		}
	}
	for _, bad := range []string{"", strings.Repeat("n", MaxSentName+1), strings.Repeat("é", MaxSentName/6+1), "a//b", "../a", "/a", "a/", "a\x00"} {
		if err := CheckSentName(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("name %q: got %v, want ErrMalformed", bad, err)
		}
	}
}

func TestMetadataMustFitItsKey(t *testing.T) {
	metadata, err := ObjectMetadata(sampleNotice(sampleRaw(), "allsky-1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{sampleSegment().Key, sampleRaw().Key + "x", "staging/thule/allsky-1/x", ""} {
		if _, err := NoticeFromMetadata(key, metadata); !errors.Is(err, ErrMalformed) {
			t.Errorf("metadata of another object at %q: got %v, want ErrMalformed", key, err)
		}
	}
	metadata[MetadataInstrument] = "allsky-2"
	if _, err := NoticeFromMetadata(sampleRaw().Key, metadata); !errors.Is(err, ErrMalformed) {
		t.Errorf("metadata of another instrument: got %v, want ErrMalformed", err)
	}
}
