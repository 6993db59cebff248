// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Cause says why something was refused, cut off or dropped. The same word
// stands in receipts, metrics, the ledger and logs.
type Cause string

// The causes.
const (
	CauseUnknownSource      Cause = "UnknownSource"      // no instrument claims this address on this port
	CauseUnknownInstrument  Cause = "UnknownInstrument"  // no instrument of the name that the sender gives
	CauseBadCertificate     Cause = "BadCertificate"     // no certificate, one of another authority, or one without a declared name
	CauseBadToken           Cause = "BadToken"           // no token, or another one
	CauseCrossOrigin        Cause = "CrossOrigin"        // a browser sent it for a web page
	CauseTLSHandshake       Cause = "TLSHandshake"       // no TLS, or none that both sides understand, on a listener that needs it
	CauseWrongProtocol      Cause = "WrongProtocol"      // a request of HTTP, or a TLS hello, on a port of raw TCP
	CauseProxyHeader        Cause = "ProxyHeader"        // no header of PROXY version 2 on the edge's port, or not in time
	CauseRateLimited        Cause = "RateLimited"        // limits.bytesPerSecond, limits.objectsPerSecond
	CauseQuarantined        Cause = "Quarantined"        // an unknown sender's, kept apart
	CauseQuarantineFull     Cause = "QuarantineFull"     // an unknown sender's, and the quarantine is at its greatest size
	CauseBadRequest         Cause = "BadRequest"         // a request over HTTP that cannot be understood
	CauseRetired            Cause = "Retired"            // the instrument is retired
	CauseEmpty              Cause = "Empty"              // the sender closed without a byte
	CauseObjectTooLarge     Cause = "ObjectTooLarge"     // limits.maxObjectSize
	CauseTooManyConnections Cause = "TooManyConnections" // limits.maxConnections
	CauseDisplaced          Cause = "Displaced"          // closed for another sender, where as many connections are open as limits.maxConnections or the gateway allows
	CauseStalled            Cause = "Stalled"            // nothing arrived for tcp.idleTimeout within an object
	CauseTooOld             Cause = "TooOld"             // the object, or UntilClose the connection, is older than tcp.maxAge
	CauseReset              Cause = "Reset"              // the connection was reset
	CauseDraining           Cause = "Draining"           // the gateway is told to stop
	CauseKilled             Cause = "Killed"             // the gateway ended before it could tell what became of it
	CauseNoSpace            Cause = "NoSpace"            // the gateway's memory and scratch stayed full, its spool is, or the disk budget of substorm up is used up
	CauseStoreUnavailable   Cause = "StoreUnavailable"   // the object store does not take the object
	CauseStreamUnavailable  Cause = "StreamUnavailable"  // JetStream does not take the message
	CauseStreamFull         Cause = "StreamFull"         // the base stream is at its greatest size
	CauseKernelBuffer       Cause = "KernelBuffer"       // the kernel's socket buffer overflowed
	CauseBacklog            Cause = "Backlog"            // telemetry waits for JetStream and its share of memory is full
	CauseTruncated          Cause = "Truncated"          // a datagram was larger than a buffer, or a connection ended within an object
	CauseUndecodable        Cause = "Undecodable"        // nobody can read the telemetry message that holds the datagram
	CauseCorrupt            Cause = "Corrupt"            // receipted into the spool, where it cannot be read any more, or from where the store does not take it
	CauseDigestMismatch     Cause = "DigestMismatch"     // the bytes have not the digest that came with them
	CauseNameConflict       Cause = "NameConflict"       // other bytes have the name
	CausePreconditionFailed Cause = "PreconditionFailed" // the name has not what If-Match or If-None-Match says
	CauseDuplicate          Cause = "Duplicate"          // the same bytes have the name: receipted, and not kept once more
	CauseSpoolAbandoned     Cause = "SpoolAbandoned"     // receipted into the spool of a pod that was given up with what was in it
	CauseStreamGone         Cause = "StreamGone"         // the stream was deleted before its telemetry was in a segment
	CauseMessageDeleted     Cause = "MessageDeleted"     // the message was deleted from the stream before its telemetry was in a segment
)

// Receipt is the word from which a sender may forget an object: one line
//
//	stored sha-256=<64 lower-case hex> bytes=<n>
//	refused <Cause>
//
// ended by LF. Unknown trailing " key=value" pairs are ignored.
type Receipt struct {
	// Digest and Bytes of the object that is safe; zero where Refused is set.
	Digest Digest
	Bytes  int64
	// Refused is why the object was not taken; empty for a stored object.
	Refused Cause
}

// MaxReceiptLine is the greatest length of a receipt line that a reader accepts.
const MaxReceiptLine = 1024

// Line returns the receipt as it goes over the wire, LF included.
func (r Receipt) Line() string {
	if r.Refused != "" {
		return "refused " + string(r.Refused) + "\n"
	}
	return "stored sha-256=" + r.Digest.String() + " bytes=" + strconv.FormatInt(r.Bytes, 10) + "\n"
}

// The two lines, in printable ASCII, with what newer gateways may append.
var (
	storedLine  = regexp.MustCompile(`^stored sha-256=([0-9a-f]{64}) bytes=(0|[1-9][0-9]{0,18})( [!-<>-~]+=[!-~]*)*$`)
	refusedLine = regexp.MustCompile(`^refused ([A-Z][A-Za-z0-9]{0,63})( [!-<>-~]+=[!-~]*)*$`)
)

// ParseReceipt reads a line, with or without its LF. Only a line that says all
// it must is a receipt; everything else is ErrMalformed.
func ParseReceipt(line string) (Receipt, error) {
	if len(line) > MaxReceiptLine {
		return Receipt{}, fmt.Errorf("receipt of %d bytes: %w", len(line), ErrMalformed)
	}
	text := strings.TrimSuffix(line, "\n")
	if m := refusedLine.FindStringSubmatch(text); m != nil {
		return Receipt{Refused: Cause(m[1])}, nil
	}
	m := storedLine.FindStringSubmatch(text)
	if m == nil {
		return Receipt{}, fmt.Errorf("receipt %q: %w", line, ErrMalformed)
	}
	digest, err := ParseDigest(m[1])
	if err != nil {
		return Receipt{}, fmt.Errorf("receipt %q: %w", line, err)
	}
	n, err := strconv.ParseInt(m[2], 10, 64)
	if err != nil {
		return Receipt{}, fmt.Errorf("receipt %q: %w", line, ErrMalformed)
	}
	return Receipt{Digest: digest, Bytes: n}, nil
}
