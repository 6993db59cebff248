// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/bus"
)

// ownPermissions in a .in.yaml means the hash of what the user may do.
const ownPermissions = "own"

// credentialsOf are the credentials that were found of a resource's user, and notes
// what becomes of them.
func (w world) credentialsOf(out *planned, resource string, user bus.JetStreamUser, annotations map[string]string) *bus.Credentials {
	found, known := w.Credentials[resource]
	if !known {
		return nil
	}
	hash := user.Hash("AACCOUNT", "AACCOUNT")
	var credentials *bus.Credentials
	if found != nil {
		c := *found
		if c.Permissions == ownPermissions {
			c.Permissions = hash
		}
		credentials = &c
	}
	if out.Credentials == nil {
		out.Credentials = map[string]bus.CredentialsAction{}
	}
	out.Credentials[resource] = user.Action(credentials, hash, annotations[v1alpha1.AnnotationRotateCredentials], w.Now)
	return credentials
}
