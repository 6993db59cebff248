// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"time"
)

// ConditionChange is published on HealthSubject when a condition of a resource
// came or changed its status or reason (ce-type TypeCondition).
type ConditionChange struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Generation of the resource that the condition speaks of.
	Generation int64 `json:"generation"`

	Condition string `json:"condition"`
	// Status is "True", "False" or "Unknown"; Was the one before, empty for a
	// condition that is new.
	Status  string    `json:"status"`
	Was     string    `json:"was,omitempty"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	At      time.Time `json:"at"`
}
