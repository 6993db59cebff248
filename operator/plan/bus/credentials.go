// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

const (
	// CredentialsLifetime is how long NATS credentials are valid.
	CredentialsLifetime = 30 * 24 * time.Hour
	// credentialsUse is how long they are used before they are renewed: an operator
	// that does not run for less than the rest stops no program.
	credentialsUse = CredentialsLifetime / 3
)

// Credentials are the credentials of a JetStream user in a Secret that the operator wrote.
type Credentials struct {
	// User is the public key.
	User string `json:"user"`
	// Permissions is the hash of their permissions.
	Permissions string `json:"permissions"`
	// ExpiresAt is zero where they do not expire.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
}

// CredentialsAction is how to treat credentials.
type CredentialsAction string

// The actions: credentials stay, are signed again for the same key, or are replaced by those of
// another key.
const (
	CredentialsKept     CredentialsAction = "Kept"
	CredentialsRenewed  CredentialsAction = "Renewed"
	CredentialsReplaced CredentialsAction = "Replaced"
)

// Lifetime is how long the user's credentials are valid; zero for a leaf's: they are
// carried to the leaf by hand, and its link may be down for longer than any
// reasonable period.
func (u JetStreamUser) Lifetime() time.Duration {
	if u.LeafOnly {
		return 0
	}
	return CredentialsLifetime
}

// Action decides about the current credentials; nil for none. Permissions is the hash of what the user may do now, and rotate the public
// key of the user that the annotation AnnotationRotateCredentials replaces.
func (u JetStreamUser) Action(c *Credentials, permissions, rotate string, now time.Time) CredentialsAction {
	lifetime := u.Lifetime()
	switch {
	case c == nil || rotate == c.User:
		return CredentialsReplaced
	case c.Permissions != permissions || c.ExpiresAt.IsZero() != (lifetime == 0):
		return CredentialsRenewed
	case lifetime == 0:
		return CredentialsKept
	case !now.Before(c.renewsAt()):
		return CredentialsRenewed
	default:
		return CredentialsKept
	}
}

func (c *Credentials) renewsAt() time.Time {
	return c.ExpiresAt.Add(credentialsUse - CredentialsLifetime)
}

// RenewsIn is how long the credentials are used still; zero where nothing is due.
func (c *Credentials) RenewsIn(now time.Time) time.Duration {
	if c == nil || c.ExpiresAt.IsZero() {
		return 0
	}
	return max(c.renewsAt().Sub(now), time.Second)
}

// Status is how a status shows them.
func (c *Credentials) Status() *v1alpha1.CredentialsStatus {
	if c == nil {
		return nil
	}
	s := &v1alpha1.CredentialsStatus{User: c.User}
	if !c.ExpiresAt.IsZero() {
		s.ExpirationTime = &metav1.Time{Time: c.ExpiresAt.UTC()}
		s.RenewalTime = &metav1.Time{Time: c.renewsAt().UTC()}
	}
	return s
}
