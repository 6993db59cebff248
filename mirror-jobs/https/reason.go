// SPDX-License-Identifier: Apache-2.0

package https

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"

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
	case errors.As(err, &refused) && refused.Status < 500 || errors.Is(err, mirrorindex.ErrFormat) || errors.Is(err, ErrPage) || bound.Is(err) || errors.Is(err, errInflated):
		return wire.MirrorReasonProtocol
	default:
		return wire.MirrorReasonUnreachable
	}
}

// unverified says whether an error is one of TLS that stays: its certificate does not convince us, or ours does not convince it, which
// crypto/tls tells as a "remote error".
func unverified(err error) bool {
	var verification *tls.CertificateVerificationError
	var alert *net.OpError
	return errors.As(err, &verification) || errors.As(err, &alert) && alert.Op == "remote error"
}
