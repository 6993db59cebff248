// SPDX-License-Identifier: Apache-2.0

package https

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/bound"
)

// ReasonOf is the reason of a report (wire.MirrorReason…) for an error of a Client.
func ReasonOf(err error) string {
	var refused *RefusedError
	switch {
	case errors.As(err, &refused) && (refused.Status == http.StatusUnauthorized || refused.Status == http.StatusForbidden):
		return wire.MirrorReasonAccessDenied
	case unverified(err):
		return wire.MirrorReasonCertificate
	case errors.As(err, &refused) && refused.Status < 500, errors.As(err, new(malformedError)), errors.Is(err, mirrorindex.ErrFormat), errors.Is(err, ErrPage),
		errors.Is(err, errElsewhere), bound.Is(err), errors.Is(err, errInflated):
		return wire.MirrorReasonProtocol
	default:
		return wire.MirrorReasonUnreachable
	}
}

// malformedError is of an answer that came and is none of the protocol, as from a captive portal: asking again may help, and the other side is
// reached.
type malformedError struct{ error }

// Unwrap returns what is wrong with it.
func (e malformedError) Unwrap() error { return e.error }

// malformed marks an error of what was read as malformedError, unless reading failed.
func malformed(err error) error {
	var network net.Error
	if err == nil || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.Canceled) || errors.As(err, &network) || errors.Is(err, syscall.ECONNRESET) {
		return err
	}
	return malformedError{err}
}

// unverified says whether an error is one of TLS that stays: its certificate does not convince us, or ours does not convince it, which
// crypto/tls tells as a "remote error".
func unverified(err error) bool {
	var verification *tls.CertificateVerificationError
	var alert *net.OpError
	return errors.As(err, &verification) || errors.As(err, &alert) && alert.Op == "remote error"
}
