// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"strings"
	"testing"
)

func TestParseReceipt(t *testing.T) {
	hex := sampleDigest("frame").String()
	stored := Receipt{Digest: sampleDigest("frame"), Bytes: 5}
	for line, want := range map[string]Receipt{
		"stored sha-256=" + hex + " bytes=5\n":                  stored,
		"stored sha-256=" + hex + " bytes=5":                    stored,
		"stored sha-256=" + hex + " bytes=5 key=o/x spool=1\n":  stored,
		"stored sha-256=" + hex + " bytes=0":                    {Digest: stored.Digest},
		"stored sha-256=" + hex + " bytes=9223372036854775807":  {Digest: stored.Digest, Bytes: 1<<63 - 1},
		"refused UnknownSource\n":                               {Refused: CauseUnknownSource},
		"refused ObjectTooLarge limit=1073741824 then=anything": {Refused: CauseObjectTooLarge},
		"refused SomethingNew":                                  {Refused: "SomethingNew"},
	} {
		if got, err := ParseReceipt(line); err != nil || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", line, got, err, want)
		}
	}
}

func TestNoReceipt(t *testing.T) {
	hex := sampleDigest("frame").String()
	for _, line := range []string{
		"", "\n", " ", "stored", "stored\n", "stored ", "OK", "200 OK", "HTTP/1.1 400 Bad Request\r\n",
		"stored sha-256=" + hex, "stored bytes=5", "stored sha-256=" + hex + " bytes=", "stored sha-256= bytes=5",
		"stored sha-256=" + hex[:63] + " bytes=5", "stored sha-256=" + hex + "0 bytes=5", "stored sha-256=" + strings.ToUpper(hex) + " bytes=5",
		"stored sha-256=" + hex + " bytes=-5", "stored sha-256=" + hex + " bytes=+5", "stored sha-256=" + hex + " bytes=-0",
		"stored sha-256=" + hex + " bytes=05", "stored sha-256=" + hex + " bytes=5_0", "stored sha-256=" + hex + " bytes=0x5",
		"stored sha-256=" + hex + " bytes=9223372036854775808", "stored sha-256=" + hex + " bytes=99999999999999999999",
		"stored  sha-256=" + hex + " bytes=5", " stored sha-256=" + hex + " bytes=5", "Stored sha-256=" + hex + " bytes=5",
		"stored bytes=5 sha-256=" + hex, "stored sha-256=" + hex + " bytes=5\r\n", "stored sha-256=" + hex + " bytes=5 ",
		"stored sha-256=" + hex + " bytes=5\n\n", "stored sha-256=" + hex + " bytes=5\nrefused Empty\n", "stored sha-256=" + hex + " bytes=5 not",
		"stored sha-256=" + hex + " bytes=5 key=\x1b[2J", "stored sha-256=" + hex + " bytes=5 key=" + strings.Repeat("x", MaxReceiptLine),
		"refused", "refused ", "refused \n", "refused key=value", "refused  Empty", "refused not-a-cause", "refused \x1b[31m",
		"refused empty", "refused Empty because", "refused " + strings.Repeat("X", 65),
	} {
		if got, err := ParseReceipt(line); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q passes for %+v, %v", line, got, err)
		}
	}
}

// TestCausesFitReceipts: every cause that a gateway may refuse with can be read.
func TestCausesFitReceipts(t *testing.T) {
	for _, cause := range []Cause{
		CauseUnknownSource, CauseRetired, CauseEmpty, CauseObjectTooLarge, CauseTooManyConnections, CauseDisplaced, CauseWrongProtocol, CauseStalled, CauseTooOld, CauseReset,
		CauseDraining, CauseStoreUnavailable, CauseStreamUnavailable, CauseStreamFull, CauseKernelBuffer, CauseBacklog, CauseTruncated,
		CauseUndecodable, CauseStreamGone, CauseMessageDeleted,
	} {
		if got, err := ParseReceipt(Receipt{Refused: cause}.Line()); err != nil || got.Refused != cause {
			t.Errorf("%s: got %+v, %v", cause, got, err)
		}
	}
}
