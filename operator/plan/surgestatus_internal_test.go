// SPDX-License-Identifier: Apache-2.0

package plan

import "testing"

// The API server refuses a status with a value of more than 16 characters.
func TestDecimalText(t *testing.T) {
	for value, want := range map[float64]string{
		7: "7", 7. / 3: "2.3333", -12.345678901234567: "-12.3457", 1e-300: "0", -1e-9: "0", 3999.99999: "4000", 8.33: "8.33",
	} {
		if got := decimalText(value); got != want {
			t.Errorf("%v is written as %q, want %q", value, got, want)
		}
	}
}
