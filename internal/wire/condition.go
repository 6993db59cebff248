// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"time"
)

// ConditionChange is published on HealthSubject when a condition of a resource
// came or changed its status or reason (ce-type TypeCondition).
type ConditionChange struct {
	Format    int    `json:"format"`
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

// Encode writes the change as JSON.
func (c ConditionChange) Encode() ([]byte, error) {
	c.Format = Format
	return json.Marshal(c)
}

// DecodeConditionChange reads a change. Errors: ErrMalformed, ErrNewerFormat.
func DecodeConditionChange(data []byte) (ConditionChange, error) {
	return decode(data, func(c ConditionChange) int { return c.Format })
}
