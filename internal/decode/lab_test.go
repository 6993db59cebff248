// SPDX-License-Identifier: Apache-2.0

package decode_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/wire"
)

var received = time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.UTC)

func ptr[T any](v T) *T { return &v }

// double is a parameter of one double that may be missing.
func double(name string) wire.ParameterEntry {
	return wire.ParameterEntry{Name: name, Type: wire.ParameterDouble, Fill: ptr("NaN")}
}

func newDecoder(t testing.TB, e wire.ChannelEntry) *decode.Decoder {
	t.Helper()
	if e.Name == "" {
		e.Name = "test"
	}
	if e.Time.Source == "" {
		e.Time.Source = wire.TimeReceived
	}
	if e.Time.Precision == "" {
		e.Time.Precision = wire.PrecisionNanoseconds
	}
	d, err := decode.New(e)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// spell writes a sample as text: the time, and all values.
func spell(d *decode.Decoder, s decode.Sample) string {
	var out strings.Builder
	out.WriteString(time.Unix(0, s.Time).UTC().Format(time.RFC3339Nano))
	for _, p := range d.Parameters() {
		for i := range p.Count {
			b := s.Values[p.At+i*p.Width:][:p.Width]
			out.WriteByte(' ')
			switch p.Type {
			case wire.ParameterDouble:
				out.WriteString(strconv.FormatFloat(math.Float64frombits(binary.LittleEndian.Uint64(b)), 'g', -1, 64))
			case wire.ParameterInteger:
				out.WriteString(strconv.Itoa(int(int32(binary.LittleEndian.Uint32(b)))))
			default:
				out.WriteString(strconv.Quote(string(bytes.TrimRight(b, "\x00"))))
			}
		}
	}
	return out.String()
}

// all decodes a payload, whole and as it comes in halves, which must be the same.
func all(t testing.TB, d *decode.Decoder, payload []byte) (samples []string, undecodable string) {
	t.Helper()
	var streamed []string
	err := d.Decode(payload, received, func(s decode.Sample) error {
		samples = append(samples, spell(d, s))
		return nil
	})
	again := d.Read(iotest.HalfReader(bytes.NewReader(payload)), received, func(s decode.Sample) error {
		streamed = append(streamed, spell(d, s))
		return nil
	})
	if diff := cmp.Diff(samples, streamed); diff != "" {
		t.Errorf("a stream reads differently (-whole +stream):\n%s", diff)
	}
	if fmt.Sprint(err) != fmt.Sprint(again) {
		t.Errorf("whole: %v, as a stream: %v", err, again)
	}
	var u *decode.Undecodable
	if err != nil && !errors.As(err, &u) {
		t.Fatal(err)
	}
	if err != nil {
		undecodable = err.Error()
	}
	return samples, undecodable
}

// payloadTest is what a channel makes of a payload.
type payloadTest struct {
	name    string
	channel wire.ChannelEntry
	payload string
	want    []string
	// wrong is part of what is said of what cannot be read; empty: all can.
	wrong string
}

func (c payloadTest) run(t *testing.T) {
	t.Run(c.name, func(t *testing.T) {
		d := newDecoder(t, c.channel)
		got, wrong := all(t, d, []byte(c.payload))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("samples (-want +got):\n%s", diff)
		}
		if (c.wrong == "") != (wrong == "") || !strings.Contains(wrong, c.wrong) {
			t.Errorf("undecodable: %q, want %q", wrong, c.wrong)
		}
	})
}

// observatory returns a real file, or a generated one of the same shape if the file is missing.
func observatory(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../../shared/data/magnetometer", name))
	if err == nil {
		return data
	}
	t.Logf("no %s beside the checkout: a made one stands for it", name)
	var out bytes.Buffer
	fmt.Fprintf(&out, " Format                 IAGA-2002                                    |\n")
	fmt.Fprintf(&out, " Reported               HEZF                                         |\n")
	fmt.Fprintf(&out, " # a remark                                                          |\n")
	fmt.Fprintf(&out, "DATE       TIME         DOY     BOUH      BOUE      BOUZ      BOUF   |\n")
	at := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 901 {
		fmt.Fprintf(&out, "%s %03d     %8.2f %9.2f %9.2f %9.2f\n", at.Format("2006-01-02 15:04:05.000"), at.YearDay(),
			20826.85-float64(i)/2000, -86.75+float64(i)/1300, 46874.62, 51815.05)
		at = at.Add(time.Second)
	}
	return out.Bytes()
}
