// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// Ticket lets a client with its secret connect to a Feed once, in place of a token: browsers send no headers with a WebSocket. It lies in
// LeaseBucket, whose entries expire.
type Ticket struct {
	Feed     string `json:"feed"`
	Consumer string `json:"consumer"`
	// Reader that it was given to, as access.Reader's String: the consumer, or a named
	// reader. Anonymous readers need none.
	Reader string `json:"reader,omitempty"`
	// By is the hash of the token that it was asked for with, Certificate the one (DER) that was presented without a token: when that is
	// no longer accepted, neither is the ticket, and connections that it opened end.
	By          *TokenHash `json:"by,omitempty"`
	Certificate []byte     `json:"certificate,omitempty"`
	ExpiresAt   time.Time  `json:"expiresAt"`
}

// TicketKey is the key of a ticket's entry; the secret cannot be derived from it.
func TicketKey(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return "ticket." + hex.EncodeToString(sum[:])
}

func (t *Ticket) check() error {
	if t.Feed == "" || t.Consumer == "" || t.ExpiresAt.IsZero() {
		return fmt.Errorf("ticket lacks feed, consumer or expiresAt: %w", ErrMalformed)
	}
	return nil
}
