// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// formatPrefix is what each record that Encode wrote begins with.
var formatPrefix = []byte(`{"format":`)

// Encode writes a record, which is a struct, as a JSON object that begins with the version of the format.
func Encode(record any) ([]byte, error) {
	members, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("%T: %w", record, err)
	}
	data := make([]byte, 0, len(members)+len(formatPrefix)+len(",1"))
	data = strconv.AppendInt(append(data, formatPrefix...), Format, 10)
	if members = members[1:]; members[0] != '}' {
		data = append(data, ',')
	}
	return append(data, members...), nil
}

// checked is a record that not every object of its members is.
type checked interface{ check() error }

// Decode reads what Encode wrote. Errors: ErrMalformed, ErrNewerFormat, also where a newer record holds what this program
// cannot parse.
func Decode[T any](data []byte) (T, error) {
	var v, none T
	if err := CheckFormat(formatOf(data)); err != nil {
		return none, fmt.Errorf("%T: %w", v, err)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return none, fmt.Errorf("%T: %w: %v", v, ErrMalformed, err)
	}
	if c, ok := any(&v).(checked); ok {
		if err := c.check(); err != nil {
			return none, fmt.Errorf("%T: %w", v, err)
		}
	}
	return v, nil
}

// formatOf returns the version of a record; 0 where it has none. Others than Encode may write it anywhere.
func formatOf(data []byte) int {
	if rest, ok := bytes.CutPrefix(data, formatPrefix); ok {
		if end := bytes.IndexAny(rest, ",}"); end > 0 {
			if n, err := strconv.Atoi(string(rest[:end])); err == nil {
				return n
			}
		}
	}
	var head struct {
		Format int `json:"format"`
	}
	if json.Unmarshal(data, &head) != nil {
		return 0
	}
	return head.Format
}
